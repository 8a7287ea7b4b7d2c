-- Marks answers as revoked until a time of decision; a mark never moves back.
-- KEYS: the mark.  ARGV: time of the decision in ms, life of the mark in ms.
local held = tonumber(redis.call('GET', KEYS[1]) or '-1')
redis.call('SET', KEYS[1], string.format('%d', math.max(held, tonumber(ARGV[1]))), 'PX', ARGV[2])
return 1
