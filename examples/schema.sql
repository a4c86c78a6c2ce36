-- What the example job works on: a table of the application, in the database that Tocsin uses.

CREATE TABLE IF NOT EXISTS shipments (
    id         text PRIMARY KEY,
    tenant_id  text NOT NULL DEFAULT 'default',
    status     text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'expired')),
    expires_at timestamptz NOT NULL,
    version    bigint NOT NULL DEFAULT 1
);

-- The job asks for "active and expired by now", oldest first; this index holds exactly those that may still expire.
CREATE INDEX IF NOT EXISTS shipments_due ON shipments (expires_at) WHERE status = 'active';

-- Three that are due and one that is not. Run the file again for three more.
INSERT INTO shipments (id, expires_at)
SELECT 'ship-' || ((SELECT coalesce(max(substr(id, 6)::bigint), 1000) FROM shipments) + n), now() + after
  FROM (VALUES (1, interval '-2 hours'), (2, '-1 hour'), (3, '-1 minute'), (4, '30 days')) AS due (n, after);
