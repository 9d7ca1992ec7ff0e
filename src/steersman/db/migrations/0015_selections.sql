-- Decisions of kind sequence: one row for a whole selection. NULL for every other kind.
ALTER TABLE decision ADD COLUMN links jsonb; -- what picking a candidate brings in, as the request says
ALTER TABLE decision ADD COLUMN steps jsonb; -- [{eligible, action, p}]; the product of p is the row's
