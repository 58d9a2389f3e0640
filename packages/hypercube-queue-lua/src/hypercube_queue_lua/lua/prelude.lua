-- What every script of a queue starts with: its keys, the check of the layout, the server's time.

local META, BODIES, STATE, READY, RETURNED, DELAYED, LEASED, DEAD, WAKE = unpack(KEYS)
local LAYOUT = "1"
-- How much a script moves at most from one structure to another by itself.
local PAGE = 256
-- The longest time for which a waiting pop does not look, in microseconds.
local SLICE = 1000000

local layout = redis.call("HGET", META, "layout")
if layout and layout ~= LAYOUT then
  return redis.error_reply("HYPERCUBELAYOUT " .. layout)
end

local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]

-- States: a kind, the attempts so far, and of a leased message its lease.
local IDLE, OWNED, BURIED = "-", "L", "D"
local LETTER = string.byte(OWNED)

local function idle(attempt)
  return struct.pack(">c1I4", IDLE, attempt)
end

local function leased(attempt, position, deadline, token)
  return struct.pack(">c1I4ddc8", OWNED, attempt, position, deadline, token)
end

local function buried(attempt, reason)
  return struct.pack(">c1I4", BURIED, attempt) .. reason
end

local function attempts(state)
  return state and struct.unpack(">I4", state, 2) or 0
end

-- The generation of the queue: one more each time that its name was removed from the registry.
local function generation()
  return tonumber(redis.call("HGET", META, "generation")) or 0
end

local function was_used_within(microseconds)
  return now - (tonumber(redis.call("HGET", META, "pushed")) or 0) < tonumber(microseconds)
end

-- One token says that a waiting pop has something to look for.
local function wake()
  if redis.call("LLEN", WAKE) == 0 then
    redis.call("LPUSH", WAKE, "1")
  end
end

-- The texts that lie one behind the other in `blob`, with their lengths in `lengths`.
local function cut(lengths, blob)
  local texts, from = {}, 1
  for i, length in ipairs({ string.byte(lengths, 1, #lengths) }) do
    texts[i] = string.sub(blob, from, from + length - 1)
    from = from + length
  end
  return texts
end

-- Messages as push and retry send them: ids, bodies, and delays in microseconds.
local function messages(heads, blob)
  local count = #heads / 13
  local numbers = { struct.unpack(">" .. string.rep("I1I4d", count), heads) }
  local ids, bodies, delays = {}, {}, {}
  local from, at = 1, 1
  for i = 1, count do
    local middle = from + numbers[at]
    local past = middle + numbers[at + 1]
    ids[i] = string.sub(blob, from, middle - 1)
    bodies[i] = string.sub(blob, middle, past - 1)
    delays[i] = numbers[at + 2]
    from, at = past, at + 3
  end
  return ids, bodies, delays
end

-- The states of those ids whose delivery, known by its token, owns the message, by index; and
-- the indexes of the others. `tokens` is one for all, or one for each.
local function owned(ids, tokens)
  local states, stale = redis.call("HMGET", STATE, unpack(ids)), {}
  local shared = #tokens == 8 and tokens
  for i = 1, #ids do
    local state = states[i]
    local alive = state
      and string.byte(state) == LETTER
      and string.sub(state, 22) == (shared or string.sub(tokens, 8 * i - 7, 8 * i))
      and struct.unpack(">d", state, 14) > now
    if not alive then
      states[i] = false
      stale[#stale + 1] = i
    end
  end
  return states, stale
end

-- Ids become visible: now, or after their delay.
local function place(ids, delays)
  local ready, later, soon = {}, {}, false
  local now_count, later_count = 0, 0
  for i = 1, #ids do
    local delay = delays[i]
    if delay > 0 then
      later[later_count + 1], later[later_count + 2] = now + delay, ids[i]
      later_count = later_count + 2
      soon = soon or delay < SLICE
    else
      now_count = now_count + 1
      ready[now_count] = ids[i]
    end
  end
  if now_count > 0 then
    redis.call("RPUSH", READY, unpack(ready))
  end
  if later_count > 0 then
    redis.call("ZADD", DELAYED, unpack(later))
  end
  if soon or now_count > 0 then
    wake()
  end
end

-- Deaths in order, none at the same microsecond as another.
local function bury(ids)
  local last = redis.call("ZRANGE", DEAD, -1, -1, "WITHSCORES")[2]
  local moment = math.max(now, (tonumber(last) or 0) + 1)
  local deaths = {}
  for i = 1, #ids do
    deaths[2 * i - 1] = moment + i - 1
    deaths[2 * i] = ids[i]
  end
  redis.call("ZADD", DEAD, unpack(deaths))
end
