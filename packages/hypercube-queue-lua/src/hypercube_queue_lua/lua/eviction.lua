#!lua flags=no-writes
-- What the server does when it has no memory left. Reply: the policy, or nothing where the user
-- may not know.

local info = redis.pcall("INFO", "memory")
return type(info) == "string" and string.match(info, "maxmemory_policy:(%S+)") or false
