-- +goose Up

-- While a topic takes nothing, the others are read by it: what waits for the one is not gone through for them. Building it
-- keeps handlers that publish waiting, for about a second a million rows.
create index outbox_topic on headrace.outbox (topic, id);

-- +goose Down
drop index headrace.outbox_topic;
