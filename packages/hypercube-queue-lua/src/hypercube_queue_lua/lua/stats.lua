#!lua flags=no-writes
-- Count messages. Reply: ready, delayed, in flight, dead.

local due = redis.call("ZCOUNT", DELAYED, "-inf", now)
local expired = redis.call("ZCOUNT", LEASED, "-inf", now)
return {
  redis.call("LLEN", READY) + redis.call("ZCARD", RETURNED) + due + expired,
  redis.call("ZCARD", DELAYED) - due,
  redis.call("ZCARD", LEASED) - expired,
  redis.call("ZCARD", DEAD),
}
