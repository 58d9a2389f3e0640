#!lua flags=allow-oom
-- Lease ready messages. ARGV: the most messages, the bytes at which to stop, the visibility timeout
-- of messages without one, the token of the deliveries.
-- Reply: 1 if more is ready, else 0; microseconds until something becomes so by itself, or -1;
-- heads (lengths of id and body, attempt), and ids with bodies.

local limit, budget = tonumber(ARGV[1]), tonumber(ARGV[2])
local visibility, token = tonumber(ARGV[3]), ARGV[4]
-- Ten years: what is longer was not written by a driver.
local LONGEST = 315360000000000

-- The first due moment of a sorted set, once a page of what is due has been moved.
local function promoted(key, settle)
  local first = tonumber(redis.call("ZRANGE", key, 0, 0, "WITHSCORES")[2])
  if first and first <= now then
    local due = redis.call("ZRANGE", key, "-inf", now, "BYSCORE", "LIMIT", 0, PAGE)
    settle(due)
    redis.call("ZREM", key, unpack(due))
    redis.call("RPUSH", READY, unpack(due))
    first = tonumber(redis.call("ZRANGE", key, 0, 0, "WITHSCORES")[2])
  end
  return first or math.huge
end

local function nothing() end

-- An expired lease leaves the attempts and no owner.
local function disown(ids)
  local states, fields = redis.call("HMGET", STATE, unpack(ids)), {}
  for i = 1, #ids do
    fields[2 * i - 1] = ids[i]
    fields[2 * i] = idle(attempts(states[i]))
  end
  redis.call("HSET", STATE, unpack(fields))
end

local due = math.min(promoted(DELAYED, nothing), promoted(LEASED, disown))

-- Returned messages have the places from which they were taken, before all that are ready.
local function take(count)
  local ids, positions = {}, {}
  local returned = redis.call("ZPOPMIN", RETURNED, count)
  for i = 1, #returned, 2 do
    ids[#ids + 1] = returned[i]
    positions[#positions + 1] = tonumber(returned[i + 1])
  end
  if #ids < count then
    local ready = redis.call("LPOP", READY, count - #ids)
    if ready then
      local last = redis.call("HINCRBY", META, "popped", #ready)
      for i = 1, #ready do
        ids[#ids + 1] = ready[i]
        positions[#positions + 1] = last - #ready + i
      end
    end
  end
  return ids, positions
end

local heads, parts, states, leases = {}, {}, {}, {}
local count, bytes, page = 0, 0, 8

-- What the body starts with; zero, and nearly all others do, is the driver's default.
local function own_visibility(body)
  if #body >= 8 and string.byte(body) ~= 0 then
    local own = struct.unpack(">d", body)
    if own >= 1 and own <= LONGEST then
      return own
    end
  end
  return visibility
end

local function lease(ids, positions)
  local bodies = redis.call("HMGET", BODIES, unpack(ids))
  local known = redis.call("HMGET", STATE, unpack(ids))
  for i = 1, #ids do
    local id, body = ids[i], bodies[i]
    if bytes >= budget then
      redis.call("ZADD", RETURNED, positions[i], id)
    elseif body then
      local attempt = attempts(known[i]) + 1
      local deadline = now + own_visibility(body)
      local at, before = 3 * count, 2 * count
      heads[at + 1], heads[at + 2], heads[at + 3] = #id, #body, attempt
      parts[before + 1], parts[before + 2] = id, body
      states[before + 1] = id
      states[before + 2] = leased(attempt, positions[i], deadline, token)
      leases[before + 1], leases[before + 2] = deadline, id
      if deadline < due then
        due = deadline
      end
      count = count + 1
      bytes = bytes + #body
    end
  end
end

while count < limit and bytes < budget do
  local asked = math.min(limit - count, page)
  local ids, positions = take(asked)
  if #ids > 0 then
    lease(ids, positions)
  end
  if #ids < asked then
    break
  end
  -- Bodies are looked at to see how long they are, so what fits is guessed from those so far.
  local average = math.max(1, bytes / math.max(1, count))
  page = math.max(1, math.min(PAGE, math.floor((budget - bytes) / average)))
end

local more = redis.call("LLEN", READY) > 0 or redis.call("EXISTS", RETURNED) == 1 or due <= now
if count > 0 then
  redis.call("HSET", STATE, unpack(states))
  redis.call("ZADD", LEASED, unpack(leases))
  -- Who takes something leaves, and with it the knowledge of what comes next.
  if more or due - now < SLICE then
    wake()
  else
    redis.call("DEL", WAKE)
  end
end

return {
  more and 1 or 0,
  due < math.huge and math.max(0, due - now) or -1,
  struct.pack(">" .. string.rep("I1I4I4", count), unpack(heads)),
  table.concat(parts),
}
