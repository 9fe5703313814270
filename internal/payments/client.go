package payments

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Charges asks the service at url for all that it has charged: what a whole run has may be long.
func Charges(ctx context.Context, client *http.Client, url string) (all []Charge, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/charges", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // there is nothing more to learn
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", r.URL, resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&all)
	return all, err
}
