package dedup

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// text is one SQL text on one connection.
type text struct {
	sql string
	// sd says what its parameters and columns are. Its Name is that of a prepared statement, "" for none. nil: the types of
	// the arguments are not asked for, they travel as text.
	sd      *pgconn.StatementDescription
	results []int16 // the formats of its columns
	// quiet is sd where nobody reads the result: pgx has what it knows no columns of described again at each execution, a third
	// message for the server to answer. nil: its columns are known.
	quiet   *pgconn.StatementDescription
	formats []int16 // of its arguments when it was used last
	err     error   // the server refuses it
	// remembered: it was described for a group before this one.
	remembered bool
}

// texts are the SQL texts that a connection knows, for pipelines. pgx has such a memory too, but finds out that an
// argument cannot be encoded when half of the batch is written, and must close the connection then; and it forgets the
// texts of every batch that failed.
type texts struct {
	mode  pgx.QueryExecMode
	known map[string]*text
	most  int
	made  int      // names given, ever
	drop  []string // names to be deallocated
}

// textsKey is where they are among the connection's custom data.
const textsKey = "headrace"

func textsOf(conn *pgx.Conn) *texts {
	data := conn.PgConn().CustomData()
	if t, ok := data[textsKey].(*texts); ok {
		return t
	}
	cfg := conn.Config()
	t := &texts{mode: cfg.DefaultQueryExecMode, known: map[string]*text{}, most: cfg.StatementCacheCapacity}
	if t.mode == pgx.QueryExecModeCacheDescribe {
		t.most = cfg.DescriptionCacheCapacity
	}
	data[textsKey] = t
	return t
}

// begin is called before a group uses any: between groups, texts may be forgotten. What DescribeExec finds out holds for
// one group, and so does that the server refused a text: the next group may find the table that was missing.
func (t *texts) begin() {
	all := t.mode == pgx.QueryExecModeDescribeExec || len(t.known) > t.most
	for _, x := range t.known {
		if !all && x.err == nil {
			x.remembered = x.sd != nil
			continue
		}
		t.leave(x)
		delete(t.known, x.sql)
	}
}

// leave has x deallocated.
func (t *texts) leave(x *text) {
	if x.sd != nil && x.sd.Name != "" {
		t.drop = append(t.drop, x.sd.Name)
	}
}

// forget forgets all, and gives what was known.
func (t *texts) forget() (old map[string]*text) {
	old, t.known = t.known, map[string]*text{}
	for _, x := range old {
		t.leave(x)
	}
	return old
}

// differ says whether one that is known is not what it was in old.
func (t *texts) differ(old map[string]*text) bool {
	for sql, x := range t.known {
		if o := old[sql]; o != nil && o.sd != nil && x.sd != nil && !alike(o.sd, x.sd) {
			return true
		}
	}
	return false
}

// alike says whether parameters and columns have the same types.
func alike(a, b *pgconn.StatementDescription) bool {
	return slices.Equal(a.ParamOIDs, b.ParamOIDs) && slices.EqualFunc(a.Fields, b.Fields,
		func(x, y pgconn.FieldDescription) bool { return x.DataTypeOID == y.DataTypeOID })
}

// find gives what is known of sql. ask says that the server must be asked first.
func (t *texts) find(sql string) (x *text, ask bool) {
	if x := t.known[sql]; x != nil {
		return x, false
	}
	x = &text{sql: strings.Clone(sql)}
	t.known[x.sql] = x
	return x, t.mode != pgx.QueryExecModeExec && t.mode != pgx.QueryExecModeSimpleProtocol
}

// describe asks the server about fresh texts, in one trip as long as it knows them all. A text that it refuses has its
// err, and fails the transaction: back to the savepoint, which is done by undo, and the rest once more. Any other error
// ends it.
func (t *texts) describe(ctx context.Context, conn *pgx.Conn, fresh []*text, undo func() bool) error {
	defer func() { // what was not described must not stay: it looks as if it needed no description
		for _, x := range fresh {
			delete(t.known, x.sql)
		}
	}()
	for len(fresh) > 0 {
		n, err := t.ask(ctx, conn, fresh)
		fresh = fresh[n:]
		if err == nil {
			return nil
		}
		if len(fresh) == 0 || conn.IsClosed() || !isServerError(err) || isConflict(err) {
			return err
		}
		fresh[0].err = err
		fresh = fresh[1:]
		if !undo() {
			return err
		}
	}
	return nil
}

// ask describes fresh until one is refused, and says how many it got through.
func (t *texts) ask(ctx context.Context, conn *pgx.Conn, fresh []*text) (n int, err error) {
	p := conn.PgConn().StartPipeline(ctx)
	defer func() {
		if closed := p.Close(); err == nil {
			err = closed
		}
	}()
	for _, name := range t.drop {
		p.SendDeallocate(name)
	}
	dropped := len(t.drop)
	t.drop = nil
	names := make([]string, len(fresh))
	for i, x := range fresh {
		names[i] = t.name()
		p.SendPrepare(names[i], x.sql, nil)
	}
	if err := p.Sync(); err != nil {
		return 0, err
	}
	for range dropped {
		if _, err := p.GetResults(); err != nil {
			return 0, err
		}
	}
	for i, x := range fresh {
		got, err := p.GetResults()
		if err != nil {
			return i, err
		}
		sd, ok := got.(*pgconn.StatementDescription)
		if !ok {
			return i, fmt.Errorf("described a text and got %T", got)
		}
		x.describedBy(sd, names[i], conn.TypeMap())
	}
	return len(fresh), nil
}

// name is of a statement that is to stay prepared, "" where none may.
func (t *texts) name() string {
	if t.mode != pgx.QueryExecModeCacheStatement {
		return ""
	}
	t.made++
	return "headrace_" + strconv.Itoa(t.made)
}

func (x *text) describedBy(sd *pgconn.StatementDescription, name string, types *pgtype.Map) {
	sd.Name, sd.SQL = name, x.sql
	x.sd = sd
	x.results = make([]int16, len(sd.Fields))
	for i := range sd.Fields {
		x.results[i] = types.FormatCodeForOID(sd.Fields[i].DataTypeOID)
	}
	if len(sd.Fields) == 0 {
		x.quiet = &pgconn.StatementDescription{Name: name, Fields: make([]pgconn.FieldDescription, 1)}
	}
}

// send puts the text with its encoded arguments into p. wanted: somebody reads the result.
func (x *text) send(p *pgconn.Pipeline, values [][]byte, formats []int16, wanted bool) {
	switch {
	case x.sd == nil:
		p.SendQueryParams(x.sql, values, nil, formats, nil)
	case x.sd.Name == "":
		p.SendQueryParams(x.sql, values, x.sd.ParamOIDs, formats, x.results)
	case x.quiet != nil && !wanted:
		p.SendQueryStatement(x.quiet, values, formats, nil)
	default:
		p.SendQueryStatement(x.sd, values, formats, x.results)
	}
}
