package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// proxy stands between the consumer and its payment service.
type proxy struct {
	*toxiproxy.Proxy
	kind kind
}

// newProxy starts one before the service at url.
func newProxy(k kind, url string) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := &proxy{toxiproxy.NewProxy(server, k.name, "127.0.0.1:0", strings.TrimPrefix(url, "http://")), k}
	return p, p.Start()
}

func (p *proxy) url() string { return "http://" + p.Listen }

// cut begins the outage.
func (p *proxy) cut() error {
	if p.kind.toxic == "" {
		p.Stop()
		return nil
	}
	toxic, err := json.Marshal(map[string]any{"type": p.kind.toxic, "attributes": p.kind.attributes})
	if err != nil {
		return err
	}
	if _, err := p.Toxics.AddToxicJson(bytes.NewReader(toxic)); err != nil {
		return fmt.Errorf("%s: %w", p.kind.name, err)
	}
	return nil
}

// heal ends it.
func (p *proxy) heal(ctx context.Context) error {
	if p.kind.toxic == "" {
		return p.Start()
	}
	p.Toxics.ResetToxics(ctx)
	return nil
}
