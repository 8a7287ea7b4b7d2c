-- Writes a terminal status.
-- KEYS: ledger entry.  ARGV: holder ('' when restored from an outcome), status, ttl in ms.
-- Returns the state that the entry holds afterwards.
local entry = redis.call('HMGET', KEYS[1], 'state', 'holder')
local state, owner = entry[1], entry[2]
if state == 'started' and ARGV[1] ~= '' and owner ~= ARGV[1] then
    return state
end
if state == 'applied' and ARGV[2] == 'resident' then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return state
end
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'holder', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return ARGV[2]
