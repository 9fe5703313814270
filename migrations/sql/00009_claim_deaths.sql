-- +goose Up

-- Which processes are believed to have died in a claim, not only how many: one that lives takes itself off. What was counted
-- before begins anew.
alter table headrace.claim_starts add column died uuid[] not null default '{}';

comment on table headrace.claim_starts is 'who holds a partition since which offset, and which processes have died there; deaths, killer, marked and what belongs to them are unused';

-- +goose Down
alter table headrace.claim_starts drop column died;
comment on table headrace.claim_starts is 'deaths of claims at an unmoved offset; killer, marked and what belongs to them are unused';
