-- Removes an answer of ours whose absolute end has come; one that was written anew since it was looked up stays.
-- KEYS: the entry.  ARGV: now in ms.  Returns 1 if it was removed.
local held = redis.call('HMGET', KEYS[1], 'source', 'expires_at_ms')
if held[1] == 'warmup' and held[2] and tonumber(held[2]) <= tonumber(ARGV[1]) then
    return redis.call('DEL', KEYS[1])
end
return 0
