#!lua flags=no-writes
-- Whether a queue is in use. ARGV: microseconds.
-- Reply: 2 if it retains anything, 1 if somebody pushed to it within that time, else 0.

if redis.call("EXISTS", BODIES) == 1 then
  return 2
end
return was_used_within(ARGV[1]) and 1 or 0
