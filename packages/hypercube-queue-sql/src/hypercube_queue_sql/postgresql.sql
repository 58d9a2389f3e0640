-- The statements of the PostgreSQL dialect. Times are microseconds since 1970, parameters go by
-- name; {messages} and {layout} are the quoted names of the two tables. {now} is the clock of the
-- moment in which it is read: now() would stand still within a transaction.
--
-- state: 0 live, 1 dead. A live message is ready when visible_at has passed. Before that it is
-- in flight if it has a token, else delayed. A dead one died at visible_at, and has a reason if
-- the driver set it aside.

-- name: insert
-- Gives the positions of the items whose ids are retained. All rows of a push become visible at
-- one moment, and stay in order by seq.
WITH item AS MATERIALIZED (
  SELECT * FROM unnest(%(queue_names)b::bytea[], %(ids)b::bytea[], %(job_names)b::bytea[],
    %(namespaces)b::bytea[], %(delays_us)b::bigint[], %(visibilities_us)b::bigint[],
    %(extras)b::bytea[], %(payloads)b::bytea[])
  WITH ORDINALITY AS item (queue_name, id, job_name, namespace, delay_us, visibility_us, extra, payload, position)
), clock AS MATERIALIZED (
  SELECT {now} AS now
), stored AS (
  INSERT INTO {messages} (queue_name, state, visible_at, attempt, visibility_us, id, job_name, namespace, extra, payload)
  SELECT queue_name, 0, clock.now + delay_us, 0, visibility_us, id, job_name, namespace, extra, payload
  FROM item, clock ORDER BY position
  ON CONFLICT (queue_name, id) DO NOTHING
  RETURNING queue_name, id
)
SELECT position FROM item
WHERE NOT EXISTS (SELECT FROM stored WHERE stored.queue_name = item.queue_name AND stored.id = item.id)

-- name: claim
-- The pick is materialised, since a subquery could be run again and lease more than it returns.
-- The old visible_at is kept as the place in the order, for a release. Where nothing is picked,
-- a row without seq says how long it is until the next message becomes visible.
WITH clock AS MATERIALIZED (
  SELECT {now} AS now
), found AS MATERIALIZED (
  SELECT seq, visible_at, octet_length(payload) + octet_length(extra) AS size FROM {messages}
  WHERE queue_name = %(queue_name)b AND state = 0 AND visible_at BETWEEN %(start)b AND (SELECT now FROM clock)
  ORDER BY visible_at, seq LIMIT %(limit)b
  FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
  SELECT seq FROM (
    SELECT seq, sum(size) OVER (ORDER BY visible_at, seq ROWS UNBOUNDED PRECEDING) - size AS size_before
    FROM found
  ) AS sized WHERE size_before < %(max_bytes)b
), claimed AS (
  UPDATE {messages}
  SET place = visible_at, visible_at = (SELECT now FROM clock) + coalesce(visibility_us, %(default_us)b), attempt = attempt + 1, token = %(token)b
  WHERE seq = ANY (ARRAY(SELECT seq FROM picked))
  RETURNING seq, place, attempt, visibility_us, reason, id, job_name, namespace, extra, payload
), next AS (
  SELECT visible_at - (SELECT now FROM clock) AS left_us FROM {messages}
  WHERE queue_name = %(queue_name)b AND state = 0
  ORDER BY visible_at LIMIT 1
)
SELECT * FROM claimed
UNION ALL
SELECT NULL, left_us, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM next
WHERE NOT EXISTS (SELECT FROM picked)

-- name: set_aside
-- The attempt that found it unreadable is taken back: the row stays as it was.
UPDATE {messages} AS message
SET state = 1, visible_at = {now}, token = NULL, attempt = attempt - 1, reason = item.reason
FROM unnest(%(seqs)b::bigint[], %(reasons)b::bytea[]) AS item (seq, reason)
WHERE message.seq = ANY (ARRAY(SELECT unnest(%(seqs)b::bigint[]))) AND message.seq = item.seq AND token = %(token)b

-- name: ack
-- Here and in all settlements: each row by its own token, and the array once more so that the
-- rows are searched for by the primary key, however few the table has.
DELETE FROM {messages} AS message
USING unnest(%(seqs)b::bigint[], %(tokens)b::bigint[]) AS item (seq, token)
WHERE message.seq = ANY (ARRAY(SELECT unnest(%(seqs)b::bigint[]))) AND message.seq = item.seq AND message.token = item.token AND visible_at > {now}
RETURNING message.seq, item.token

-- name: retry
UPDATE {messages} AS message
SET visible_at = {now} + item.delay_us, token = NULL, extra = item.extra, payload = item.payload
FROM unnest(%(seqs)b::bigint[], %(tokens)b::bigint[], %(delays_us)b::bigint[], %(extras)b::bytea[], %(payloads)b::bytea[])
  AS item (seq, token, delay_us, extra, payload)
WHERE message.seq = ANY (ARRAY(SELECT unnest(%(seqs)b::bigint[]))) AND message.seq = item.seq AND message.token = item.token AND visible_at > {now}
RETURNING message.seq, item.token

-- name: dead_letter
UPDATE {messages} AS message
SET state = 1, visible_at = {now}, token = NULL, extra = item.extra, payload = item.payload
FROM unnest(%(seqs)b::bigint[], %(tokens)b::bigint[], %(extras)b::bytea[], %(payloads)b::bytea[])
  AS item (seq, token, extra, payload)
WHERE message.seq = ANY (ARRAY(SELECT unnest(%(seqs)b::bigint[]))) AND message.seq = item.seq AND message.token = item.token AND visible_at > {now}
RETURNING message.seq, item.token

-- name: extend_visibility
UPDATE {messages} AS message
SET visible_at = {now} + %(extension_us)b
FROM unnest(%(seqs)b::bigint[], %(tokens)b::bigint[]) AS item (seq, token)
WHERE message.seq = ANY (ARRAY(SELECT unnest(%(seqs)b::bigint[]))) AND message.seq = item.seq AND message.token = item.token AND visible_at > {now}
RETURNING message.seq, item.token

-- name: release
-- Where the clock has gone back since the claim, the old place would be in the future.
UPDATE {messages} AS message
SET visible_at = least(place, {now}), token = NULL, attempt = attempt - 1
FROM unnest(%(seqs)b::bigint[], %(tokens)b::bigint[]) AS item (seq, token)
WHERE message.seq = ANY (ARRAY(SELECT unnest(%(seqs)b::bigint[]))) AND message.seq = item.seq AND message.token = item.token AND visible_at > {now}
RETURNING message.seq, item.token

-- name: redrive
-- What the driver has set aside stays: it would only be set aside again.
WITH picked AS MATERIALIZED (
  SELECT seq FROM {messages}
  WHERE queue_name = %(queue_name)b AND state = 1 AND reason IS NULL
  ORDER BY visible_at, seq LIMIT %(count)b
  FOR UPDATE
)
UPDATE {messages}
SET state = 0, visible_at = {now}, attempt = 0
WHERE seq = ANY (ARRAY(SELECT seq FROM picked))

-- name: redrive_ids
-- Found by their ids first: asked for the dead among them at once, a server without statistics
-- would read all of the dead.
WITH found AS MATERIALIZED (
  SELECT seq FROM {messages}
  WHERE queue_name = %(queue_name)b AND id = ANY (ARRAY(SELECT unnest(%(ids)b::bytea[])))
)
UPDATE {messages}
SET state = 0, visible_at = {now}, attempt = 0
WHERE seq = ANY (ARRAY(SELECT seq FROM found)) AND state = 1 AND reason IS NULL

-- name: forget
WITH found AS MATERIALIZED (
  SELECT seq FROM {messages}
  WHERE queue_name = %(queue_name)b AND id = ANY (ARRAY(SELECT unnest(%(ids)b::bytea[])))
)
DELETE FROM {messages}
WHERE seq = ANY (ARRAY(SELECT seq FROM found)) AND state = 1

-- name: dead_letters
SELECT seq, visible_at, attempt, visibility_us, reason, id, job_name, namespace, extra, payload
FROM {messages}
WHERE queue_name = %(queue_name)b AND state = 1 AND (visible_at, seq) < (%(died_at)b, %(seq)b)
ORDER BY visible_at DESC, seq DESC LIMIT %(limit)b

-- name: queues
-- From each name to the next one, so that it takes as long as there are names, not messages.
WITH RECURSIVE names (queue_name) AS (
  (SELECT queue_name FROM {messages} ORDER BY queue_name LIMIT 1)
  UNION ALL
  SELECT (SELECT queue_name FROM {messages} WHERE queue_name > names.queue_name ORDER BY queue_name LIMIT 1)
  FROM names WHERE queue_name IS NOT NULL
)
SELECT queue_name FROM names WHERE queue_name IS NOT NULL

-- name: stats
WITH clock AS MATERIALIZED (
  SELECT {now} AS now
)
SELECT
  (SELECT count(*) FROM {messages} WHERE queue_name = %(queue_name)b AND state = 0 AND visible_at <= (SELECT now FROM clock)),
  (SELECT count(*) FROM {messages} WHERE queue_name = %(queue_name)b AND state = 0 AND visible_at > (SELECT now FROM clock) AND token IS NULL),
  (SELECT count(*) FROM {messages} WHERE queue_name = %(queue_name)b AND state = 0 AND visible_at > (SELECT now FROM clock) AND token IS NOT NULL),
  (SELECT count(*) FROM {messages} WHERE queue_name = %(queue_name)b AND state = 1)

-- name: notify
SELECT pg_notify(%(channel)s::text, hint) FROM unnest(%(hints)s::text[]) AS hint

-- name: version
-- With the schema that the tables are in, or will be made in, and the number of the session.
SELECT current_setting('server_version_num')::int, coalesce(
  (SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE pg_class.oid = to_regclass('{messages}')),
  current_schema()
)::text, pg_backend_pid()

-- name: database
SELECT current_database()::text, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, host(inet_server_addr()), current_setting('port')

-- name: layout
-- The version of the tables' layout; NULL if a migration made them and nobody has used them.
SELECT max(version) FROM {layout}

-- name: set_layout
INSERT INTO {layout} (version) VALUES (%(version)b) ON CONFLICT (version) DO NOTHING

-- name: lock
-- Until the end of the transaction: CREATE TABLE IF NOT EXISTS fails when two of them meet.
SELECT pg_advisory_xact_lock(%(key)b)
