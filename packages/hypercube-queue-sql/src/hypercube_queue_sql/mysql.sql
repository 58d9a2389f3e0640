-- The statements of the dialect for MySQL and MariaDB. Times are microseconds since 1970,
-- parameters go by name; {messages} and {layout} are the quoted names of the two tables. {now} is
-- the clock at the beginning of a statement, in UTC: it depends on no time zone, and goes on
-- within a transaction. What stands in double braces is filled in for each call, with numbers and
-- hexadecimal literals only.
--
-- Indexes are named because a plan that scans a small table waits for the locks of others.
--
-- state: 0 live, 1 dead. A live message is ready when visible_at has passed. Before that it is
-- in flight if it has a token, else delayed. A dead one died at visible_at, and has a reason if
-- the driver set it aside.

-- name: insert
-- All rows of a push become visible at one moment, and stay in order by seq. One whose id is
-- retained makes the statement fail as a whole: IGNORE would hide other faults as well, and the
-- number of rows that ON DUPLICATE KEY UPDATE gives depends on the settings of the connection.
INSERT INTO {messages} (queue_name, state, visible_at, attempt, visibility_us, id, job_name, namespace, extra, payload)
VALUES {{rows}}

-- name: seen
-- Which ids are retained, as far as the snapshot knows; it locks nothing.
SELECT queue_name, id, seq FROM {messages} FORCE INDEX ({unique})
WHERE {{ids}}

-- name: there
-- Whether a row that was seen is still there, whatever snapshot a transaction of the caller's
-- has. Several are joined by UNION ALL: a list would lock what stands between them, too.
(SELECT queue_name, id, seq FROM {messages} FORCE INDEX (PRIMARY)
WHERE seq = {{seq}} LOCK IN SHARE MODE)

-- name: retained
-- What an INSERT has met that the snapshot did not know. It locks what stands between, too.
SELECT queue_name, id, seq FROM {messages} FORCE INDEX ({unique})
WHERE {{ids}} LOCK IN SHARE MODE

-- name: next_visible
-- How long until the next message becomes visible; negative if one is. And whether the server
-- takes changes only from administrators.
SELECT (
  SELECT visible_at - {now} FROM {messages} FORCE INDEX ({ready})
  WHERE queue_name = %(queue_name)s AND state = 0
  ORDER BY visible_at LIMIT 1
), @@global.read_only

-- name: change_nothing
-- Fails where the server takes no changes.
UPDATE {messages} SET attempt = attempt WHERE FALSE

-- name: claim
-- The row without seq says how long until the next message becomes visible; negative if one is.
(SELECT seq, visible_at, attempt + 1, visibility_us, reason, id, job_name, namespace, extra, payload
FROM {messages} FORCE INDEX ({ready})
WHERE queue_name = %(queue_name)s AND state = 0 AND visible_at <= {now}
ORDER BY visible_at, seq LIMIT %(limit)s
FOR UPDATE SKIP LOCKED)
UNION ALL
(SELECT NULL, visible_at - {now}, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM {messages} FORCE INDEX ({ready})
WHERE queue_name = %(queue_name)s AND state = 0
ORDER BY visible_at LIMIT 1)

-- name: lease
-- The old visible_at is kept as the place in the order, for a release. Columns are set from left
-- to right.
UPDATE {messages} FORCE INDEX (PRIMARY)
SET place = visible_at, visible_at = {now} + coalesce(visibility_us, %(default_us)s), attempt = attempt + 1, token = %(token)s
WHERE seq IN ({{seqs}})

-- name: set_aside
-- The attempt that found it unreadable is taken back: the row stays as it was.
UPDATE {messages} FORCE INDEX (PRIMARY)
SET state = 1, visible_at = {now}, token = NULL, attempt = attempt - 1, reason = CASE seq {{reasons}} END
WHERE seq IN ({{seqs}}) AND token = %(token)s

-- name: held
-- Locks the rows that are to be settled; whose they are, and until when.
SELECT seq, token, visible_at FROM {messages} FORCE INDEX (PRIMARY)
WHERE seq IN ({{seqs}}) ORDER BY seq FOR UPDATE

-- name: ack
-- Here and in all settlements: rows that are locked, and had the right tokens.
DELETE message FROM {messages} AS message FORCE INDEX (PRIMARY)
WHERE seq IN ({{seqs}}) AND visible_at > {now}

-- name: retry
UPDATE {messages} FORCE INDEX (PRIMARY)
SET visible_at = {now} + CASE seq {{delays_us}} END, token = NULL, extra = CASE seq {{extras}} END, payload = CASE seq {{payloads}} END
WHERE seq IN ({{seqs}}) AND visible_at > {now}

-- name: dead_letter
UPDATE {messages} FORCE INDEX (PRIMARY)
SET state = 1, visible_at = {now}, token = NULL, extra = CASE seq {{extras}} END, payload = CASE seq {{payloads}} END
WHERE seq IN ({{seqs}}) AND visible_at > {now}

-- name: extend_visibility
UPDATE {messages} FORCE INDEX (PRIMARY)
SET visible_at = {now} + %(extension_us)s
WHERE seq IN ({{seqs}}) AND visible_at > {now}

-- name: release
-- Where the clock has gone back since the claim, the old place would be in the future.
UPDATE {messages} FORCE INDEX (PRIMARY)
SET visible_at = least(coalesce(place, {now}), {now}), token = NULL, attempt = attempt - 1
WHERE seq IN ({{seqs}}) AND visible_at > {now}

-- name: redrive
-- What the driver has set aside stays: it would only be set aside again. The order names the
-- whole index, since MariaDB may not see that its first columns are constant.
UPDATE {messages} FORCE INDEX ({ready})
SET state = 0, visible_at = {now}, attempt = 0
WHERE queue_name = %(queue_name)s AND state = 1 AND reason IS NULL
ORDER BY queue_name, state, visible_at, seq LIMIT %(count)s

-- name: redrive_ids
UPDATE {messages} FORCE INDEX ({unique})
SET state = 0, visible_at = {now}, attempt = 0
WHERE queue_name = %(queue_name)s AND id IN ({{ids}}) AND state = 1 AND reason IS NULL

-- name: forget
DELETE message FROM {messages} AS message FORCE INDEX ({unique})
WHERE queue_name = %(queue_name)s AND id IN ({{ids}}) AND state = 1

-- name: dead_letters
-- A comparison of pairs would read the index from its beginning.
SELECT seq, visible_at, attempt, visibility_us, reason, id, job_name, namespace, extra, payload
FROM {messages} FORCE INDEX ({ready})
WHERE queue_name = %(queue_name)s AND state = 1 AND visible_at <= %(died_at)s AND (visible_at < %(died_at)s OR seq < %(seq)s)
ORDER BY visible_at DESC, seq DESC LIMIT %(limit)s

-- name: queues
-- Read by leaps in the index, from each name to the next one.
SELECT DISTINCT queue_name FROM {messages}

-- name: stats
SELECT
  (SELECT count(*) FROM {messages} FORCE INDEX ({ready}) WHERE queue_name = %(queue_name)s AND state = 0 AND visible_at <= {now}),
  (SELECT count(*) FROM {messages} FORCE INDEX ({ready}) WHERE queue_name = %(queue_name)s AND state = 0 AND visible_at > {now} AND token IS NULL),
  (SELECT count(*) FROM {messages} FORCE INDEX ({ready}) WHERE queue_name = %(queue_name)s AND state = 0 AND visible_at > {now} AND token IS NOT NULL),
  (SELECT count(*) FROM {messages} FORCE INDEX ({ready}) WHERE queue_name = %(queue_name)s AND state = 1)

-- name: server
SELECT version(), @@max_allowed_packet, database()

-- name: database
SELECT database()

-- name: identity
SHOW GLOBAL VARIABLES WHERE variable_name IN ('server_uuid', 'server_uid', 'hostname', 'port', 'datadir', 'server_id', 'group_replication_group_name')

-- name: cluster
-- Of MariaDB with Galera.
SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'

-- name: layout
-- The version of the tables' layout; NULL if a migration made them and nobody has used them.
SELECT max(version) FROM {layout}

-- name: set_layout
INSERT INTO {layout} (version) VALUES (%(version)s) ON DUPLICATE KEY UPDATE version = %(version)s

-- name: lock
-- Of the session, since statements that create tables end transactions.
SELECT get_lock(%(key)s, %(seconds)s)

-- name: unlock
SELECT release_lock(%(key)s)

-- name: savepoint
SAVEPOINT hypercube

-- name: release_savepoint
RELEASE SAVEPOINT hypercube
