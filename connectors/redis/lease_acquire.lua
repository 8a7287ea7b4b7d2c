-- Takes a lease that is free or already the caller's.
-- KEYS: lease, fence.  ARGV: holder, life in ms, life of the fence in ms.
-- Returns the fencing token as a string, or false when somebody else has the lease.
local entry = redis.call('HMGET', KEYS[1], 'holder', 'token')
if entry[1] and entry[1] ~= ARGV[1] then
    return false
end
local token = entry[2]
if not token then
    -- The clock is the floor, so that tokens grow even if Redis has lost the last one.
    local now = redis.call('TIME')
    local floor = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
    token = string.format('%.0f', math.max(floor, tonumber(redis.call('GET', KEYS[2]) or '0') + 1))
    redis.call('SET', KEYS[2], token, 'PX', ARGV[3])
    redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'token', token)
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return token
