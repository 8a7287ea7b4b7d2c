-- Renews (life > 0) or gives back (life = 0) a lease, if it is still the caller's.
-- KEYS: lease.  ARGV: holder, token, life in ms.  Returns 1 or 0.
local entry = redis.call('HMGET', KEYS[1], 'holder', 'token')
if entry[1] ~= ARGV[1] or entry[2] ~= ARGV[2] then
    return 0
end
if tonumber(ARGV[3]) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
else
    redis.call('DEL', KEYS[1])
end
return 1
