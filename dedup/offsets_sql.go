package dedup

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// codeFenced is raised by headrace.mark_offsets: another claim has acquired the partition.
const codeFenced = "HR001"

// acquireSQL makes a partition a claim's, and fences off whoever had it before. It commits by itself.
const acquireSQL = `insert into headrace.offsets as o (consumer_id, topic_id, part)
values ($1::int, $2::text::uuid, $3::int)
on conflict (consumer_id, topic_id, part) do update set epoch = o.epoch + 1, acquired_at = now()
returning epoch, low, done, graves, leader_epoch, top, top_epoch`

const markOffsetsSQL = `select headrace.mark_offsets($1::int, $2::text::uuid[], $3::text::int[], $4::text::bigint[], $5::text::bigint[],
	$6::text::text[], $7::text::text[], $8::text::int[], $9::text::bigint[], $10::text::int[])`

// storedOffsets is what a row says.
type storedOffsets struct {
	low          int64
	done, graves runs
	leader       int32
	top          top
}

// scanOffsets reads a row of acquireSQL.
func scanOffsets(row pgx.Row) (epoch int64, s storedOffsets, err error) {
	var done, graves []byte
	if err := row.Scan(&epoch, &s.low, &done, &graves, &s.leader, &s.top.offset, &s.top.epoch); err != nil {
		return 0, s, err
	}
	if s.low < 0 || epoch <= 0 {
		return 0, s, fmt.Errorf("%w: low %d, epoch %d", errOffsets, s.low, epoch)
	}
	if s.done, err = decodeRuns(done, s.low); err != nil {
		return 0, s, fmt.Errorf("what is done: %w", err)
	}
	if s.graves, err = decodeRuns(graves, s.low); err != nil {
		return 0, s, fmt.Errorf("what is dead: %w", err)
	}
	return epoch, s, nil
}

// readOffsets reads a row without acquiring it; nothing is done where there is none.
func readOffsets(ctx context.Context, conn *pgx.Conn, consumer int32, at partition, lock string) (epoch int64, s storedOffsets, err error) {
	epoch, s, err = scanOffsets(conn.QueryRow(ctx, `select epoch, low, done, graves, leader_epoch, top, top_epoch from headrace.offsets
		where consumer_id = $1::int and topic_id = $2::text::uuid and part = $3::int `+lock, consumer, at.topic.String(), at.n))
	if err == pgx.ErrNoRows { //nolint:errorlint // as it comes from Scan
		return 0, storedOffsets{leader: -1, top: top{-1, -1}}, nil
	}
	return epoch, s, err
}

// markArgs are the arguments of markOffsetsSQL, as text: that works in each of pgx's exec modes.
type markArgs struct {
	topics, parts, epochs, lows, dones, graves, leaders, tops, topEpochs []byte
	set                                                                  []byte
}

func (a *markArgs) add(m *mark) {
	a.topics = appendUUID(separated(a.topics), m.img.at.topic)
	a.parts = strconv.AppendInt(separated(a.parts), int64(m.img.at.n), 10)
	a.epochs = strconv.AppendInt(separated(a.epochs), m.epoch, 10)
	a.lows = strconv.AppendInt(separated(a.lows), m.low, 10)
	a.set = m.done.encode(a.set[:0], m.low)
	a.dones = appendHex(separated(a.dones), a.set)
	a.set = m.graves.encode(a.set[:0], m.low)
	a.graves = appendHex(separated(a.graves), a.set)
	a.leaders = strconv.AppendInt(separated(a.leaders), int64(m.leaders.before(m.low)), 10)
	top := m.tops.highest()
	a.tops = strconv.AppendInt(separated(a.tops), top.offset, 10)
	a.topEpochs = strconv.AppendInt(separated(a.topEpochs), int64(top.epoch), 10)
}

// appendHex quotes, because an empty set is an empty text.
func appendHex(b, set []byte) []byte {
	return append(hex.AppendEncode(append(b, '"'), set), '"')
}

func (a *markArgs) values(consumer int32) []any {
	return []any{
		consumer, array(a.topics), array(a.parts), array(a.epochs), array(a.lows), array(a.dones), array(a.graves), array(a.leaders),
		array(a.tops), array(a.topEpochs),
	}
}
