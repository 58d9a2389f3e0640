-- The statements of the SQLite dialect. Times are microseconds since 1970, parameters are
-- positional; {messages} and {layout} are the quoted names of the two tables.
--
-- state: 0 live, 1 dead. A live message is ready when visible_at has passed. Before that it is
-- in flight if it has a token, else delayed. A dead one died at visible_at, and has a reason if
-- the driver set it aside.

-- name: insert
-- As many rows as the chunk has messages. An id that is retained leaves everything as it is,
-- and makes the row count fall short. Until the first claim a row's place has no other use than
-- to tell which push stored it.
INSERT INTO {messages} (queue_name, state, visible_at, place, attempt, visibility_us, id, job_name, namespace, extra, payload)
VALUES {rows}
ON CONFLICT (queue_name, id) DO NOTHING

-- name: inserted
SELECT 1 FROM {messages}
WHERE queue_name = ? AND id = ? AND place = ?

-- name: next_visible
-- When the next message becomes visible; in the past if one is.
SELECT visible_at FROM {messages}
WHERE queue_name = ? AND state = 0
ORDER BY visible_at LIMIT 1

-- name: claim
-- The old visible_at is kept as the place in the order, for a release. SQLite knows the length of a
-- blob without reading it, and sums the sizes in the order of the search below.
UPDATE {messages}
SET place = visible_at, visible_at = ?1 + coalesce(visibility_us, ?2), attempt = attempt + 1, token = ?3
WHERE seq IN (
  SELECT seq FROM (
    SELECT seq, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS size_before
    FROM (
      SELECT seq, length(payload) + length(extra) AS size FROM {messages}
      WHERE queue_name = ?4 AND state = 0 AND visible_at <= ?1
      ORDER BY visible_at, seq LIMIT ?5
    )
  ) WHERE size_before < ?6
)
RETURNING seq, place, attempt, visibility_us, reason, id, job_name, namespace, extra, payload

-- name: claim_undated
-- Rows that no date makes visible: SQLite keeps a text where it was given one, and holds any
-- text to be greater than any number.
UPDATE {messages}
SET place = visible_at, visible_at = ?1 + coalesce(visibility_us, ?2), attempt = attempt + 1, token = ?3
WHERE seq IN (
  SELECT seq FROM {messages}
  WHERE queue_name = ?4 AND state = 0 AND visible_at >= ''
  LIMIT ?5
)
RETURNING seq, place, attempt, visibility_us, reason, id, job_name, namespace, extra, payload

-- name: set_aside
-- The attempt that found it unreadable is taken back: the row stays as it was.
UPDATE {messages}
SET state = 1, visible_at = ?, token = NULL, attempt = attempt - 1, reason = ?
WHERE seq = ? AND token = ?

-- name: ack
DELETE FROM {messages}
WHERE seq = ? AND token = ? AND visible_at > ?

-- name: retry
UPDATE {messages}
SET visible_at = ?, token = NULL, extra = ?, payload = ?
WHERE seq = ? AND token = ? AND visible_at > ?

-- name: dead_letter
UPDATE {messages}
SET state = 1, visible_at = ?, token = NULL, extra = ?, payload = ?
WHERE seq = ? AND token = ? AND visible_at > ?

-- name: extend_visibility
UPDATE {messages}
SET visible_at = ?
WHERE seq = ? AND token = ? AND visible_at > ?

-- name: release
-- Where the clock has gone back since the claim, the old place would be in the future.
UPDATE {messages}
SET visible_at = min(place, ?), token = NULL, attempt = attempt - 1
WHERE seq = ? AND token = ? AND visible_at > ?

-- name: redrive
-- What the driver has set aside stays: it would only be set aside again.
UPDATE {messages}
SET state = 0, visible_at = ?, attempt = 0
WHERE seq IN (
  SELECT seq FROM {messages}
  WHERE queue_name = ? AND state = 1 AND reason IS NULL
  ORDER BY visible_at, seq LIMIT ?
)

-- name: redrive_id
UPDATE {messages}
SET state = 0, visible_at = ?, attempt = 0
WHERE queue_name = ? AND id = ? AND state = 1 AND reason IS NULL

-- name: forget
DELETE FROM {messages}
WHERE queue_name = ? AND id = ? AND state = 1

-- name: dead_letters
SELECT seq, visible_at, attempt, visibility_us, reason, id, job_name, namespace, extra, payload
FROM {messages}
WHERE queue_name = ? AND state = 1 AND (visible_at, seq) < (?, ?)
ORDER BY visible_at DESC, seq DESC LIMIT ?

-- name: queues
-- From each name to the next one, so that it takes as long as there are names, not messages.
WITH RECURSIVE names (queue_name) AS (
  SELECT min(queue_name) FROM {messages}
  UNION ALL
  SELECT (SELECT min(queue_name) FROM {messages} WHERE queue_name > names.queue_name)
  FROM names WHERE queue_name IS NOT NULL
)
SELECT queue_name FROM names WHERE queue_name IS NOT NULL

-- name: stats
SELECT
  (SELECT count(*) FROM {messages} WHERE queue_name = ?1 AND state = 0 AND visible_at <= ?2),
  (SELECT count(*) FROM {messages} WHERE queue_name = ?1 AND state = 0 AND visible_at > ?2 AND token IS NULL),
  (SELECT count(*) FROM {messages} WHERE queue_name = ?1 AND state = 0 AND visible_at > ?2 AND token IS NOT NULL),
  (SELECT count(*) FROM {messages} WHERE queue_name = ?1 AND state = 1)

-- name: layout
-- The version of the tables' layout; NULL if a migration made them and nobody has used them.
SELECT max(version) FROM {layout}

-- name: set_layout
INSERT INTO {layout} (version) VALUES (?) ON CONFLICT (version) DO NOTHING
