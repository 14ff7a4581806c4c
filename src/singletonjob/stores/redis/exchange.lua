-- Carry out one part of a replica's batch, each request separately, by the rules of stores/rules.py. In addition, a
-- lease is held as long as its lock key exists, and the key's value is the holder, whatever the state says.
--
-- KEYS  the set of job names, then for each request the lock and the state of its job
-- ARGV  node id; the time after which nothing is done, in microseconds, or ''; channel; then the requests
-- Reply the time only, if it is too late. Otherwise the time, the error of the notice and the error of the set of names
--       ('' for none), and one verdict for each request, as the lines of one text, because a client takes ten times as
--       long for separate texts. wire.py writes the requests and reads the verdicts.
--
-- All instants are microseconds since the epoch, exact as doubles up to 2^53. Lua's own conversion of numbers to
-- text drops digits, so numbers from outside stay text, and others go through text().

local BEFORE = 3 -- arguments before the requests
local AHEAD = 600000000
local RESIGNS = 10000000

local ESCAPED = {['%'] = '%25', ['\n'] = '%0A'}

local function text(number)
  return string.format('%.0f', number)
end

local KEYS, ARGV, try, match = KEYS, ARGV, redis.pcall, string.match -- as locals, because Lua looks globals up by name each time
local node, void_at, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local time = redis.call('TIME')
local wall = tonumber(time[1]) * 1000000 + tonumber(time[2])
if void_at and wall > void_at then
  return {text(wall)}
end

local command = ''
-- Jobs to add to the set of names, jobs to remove from it, and jobs for the notice.
local named, forgotten, news = {}, {}, {}

-- Remember the command, because the errors of some servers do not name it.
local function call(name, ...)
  command = name
  return redis.call(name, ...)
end

local function load(key)
  local field = call('HMGET', key, 'holder', 'seq', 'token', 'slot', 'done', 'off', 'paused', 'resign', 'trigger',
    'released', 'run')
  local state = {
    holder = field[1],
    seq = tonumber(field[2]) or 0,
    token = tonumber(field[3]) or 0,
    off = tonumber(field[6]),
    paused = field[7] or '',
    resign = field[8] or '',
    trigger = field[9] or '',
    released = tonumber(field[10]) or 0,
    run = field[11] or '',
    mark = '',
    done = '',
    ended = '',
  }
  if field[4] then
    local slot, slot_token, mark = match(field[4], '^(%d+):(%d+):(.*)$')
    if slot then
      state.slot, state.slot_token, state.mark, state.slot_text = tonumber(slot), slot_token, mark, field[4]
    end
  end
  if field[5] then
    local done, ended = match(field[5], '^(%d*):(%d*)$')
    state.done, state.ended = done or '', ended or ''
  end
  return state
end

-- The slot that bars earlier ones. A slot far ahead does not, because it comes from a wrong clock.
local function barring(state)
  return state.slot and state.slot <= wall + AHEAD and state.slot
end

-- The orders in force. orders.py defines their texts.
local function pause_ends(state)
  local ends = match(state.paused, '^(%d*);%d+;')
  if ends and (ends == '' or tonumber(ends) > wall) then
    return ends
  end
end

local function resignation_ends(state)
  local ends, named_node = match(state.resign, '^(%d+);(.*)$')
  if named_node == node and tonumber(ends) > wall then
    return ends
  end
end

local function trigger_waiting(state)
  local ends, id = match(state.trigger, '^(%d+);(.*)$')
  if ends and tonumber(ends) > wall then
    return id
  end
  return ''
end

local function refused(lock, holder, state)
  if not holder then
    return 'F'
  end
  local foreign = holder ~= node and holder ~= state.holder
  return 'X;' .. text(call('PTTL', lock)) .. ';' .. (foreign and '1' or '0') .. ';' .. text(state.token)
    .. ';' .. holder
end

-- The field `run` of a report. If no run of the term ended well, keep the earlier time.
local function run_of(state, outcome, runs, failures, good_ago)
  local good = ''
  if outcome ~= 'ok' then
    local before, kept = match(state.run, '^(%a*);%d*;%d*;(%d*)$')
    if good_ago ~= '' then
      good = text(wall - tonumber(good_ago))
    else
      good = before == 'ok' and state.ended or kept or ''
    end
  end
  return outcome .. ';' .. runs .. ';' .. failures .. ';' .. good
end

-- The fields that a report changes, as arguments of HSET.
local function progress(state, report)
  local fields = {}
  if report == '' then
    return fields
  end
  local outcome, tick, done, ago, settled, runs, failures, good_ago, finished =
    match(report, '^(%a*);(%d*);(%d*);(%d*);(%d*);(%d*);(%d*);(%d*);(.*)$')
  if outcome ~= '' then
    local run = run_of(state, outcome, runs, failures, good_ago)
    if run ~= state.run then
      fields = {'run', run}
    end
  end
  if finished ~= '' then
    fields[#fields + 1] = 'finished'
    fields[#fields + 1] = finished
  end
  local stored = barring(state)
  if tick ~= '' and not (stored and tonumber(tick) <= stored) then
    fields[#fields + 1] = 'slot'
    fields[#fields + 1] = tick .. ':' .. text(state.token) .. ':' .. state.mark
  end
  local before = state.done .. ':' .. state.ended
  if done ~= '' and not (state.done ~= '' and tonumber(done) <= tonumber(state.done)) then
    state.done = done
  end
  if ago ~= '' then
    local ended, stored_end = wall - tonumber(ago), tonumber(state.ended)
    if not stored_end or ended > stored_end or stored_end > wall then
      state.ended = text(ended)
    end
  end
  local after = state.done .. ':' .. state.ended
  if after ~= before then
    fields[#fields + 1] = 'done'
    fields[#fields + 1] = after
  end
  local till = tonumber(settled)
  if till and state.off and state.off >= 0 and state.off < till and till <= wall + AHEAD then
    fields[#fields + 1] = 'off'
    fields[#fields + 1] = settled
  end
  return fields
end

local handle = {}

function handle.A(job, lock, key, number, milliseconds, above)
  local holder, state = call('GET', lock), load(key)
  if holder and (holder ~= node or (state.holder == node and tonumber(number) <= state.seq)) then
    return refused(lock, holder, state)
  end
  local mine = holder and '1' or '0'
  local paused, resigned = pause_ends(state), resignation_ends(state)
  if paused then
    return 'B;paused;' .. mine .. ';' .. paused .. ';' .. state.paused
  end
  -- No lease lasts longer than that. Such an order was given while the clock was ahead, and does not count.
  if resigned and tonumber(resigned) - wall <= math.max(tonumber(milliseconds) * 1000, RESIGNS) then
    return 'B;resigned;' .. mine .. ';' .. resigned .. ';'
  end
  local token = text(math.max(state.token + 1, tonumber(above) + 1, wall))
  local fields = {'holder', node, 'seq', number, 'token', token, 'since', text(wall)}
  local off = state.off
  if (not off and not state.slot) or (off and off < 0) then
    off = wall -- a new job, or one that was switched off: earlier slots do not run
    fields[#fields + 1] = 'off'
    fields[#fields + 1] = text(off)
  end
  if state.resign ~= '' then
    fields[#fields + 1] = 'resign'
    fields[#fields + 1] = ''
  end
  if state.ended ~= '' and tonumber(state.ended) > wall then
    state.ended = text(wall) -- otherwise a clock that was ahead once would delay an interval job
    fields[#fields + 1] = 'done'
    fields[#fields + 1] = state.done .. ':' .. state.ended
  end
  -- The lock last: if the server refuses one of the writes, no replica holds a lease without knowing it.
  call('HSET', key, unpack(fields))
  call('SET', lock, node, 'PX', milliseconds)
  named[#named + 1] = job
  local ended = state.done .. ':' .. state.ended
  -- A holder that requests again never got the first answer, so the state before its first request still counts.
  local released = (state.holder == holder or state.token == state.released) and text(state.released) or '0'
  return 'G;' .. token .. ';' .. released .. ';' .. (off and text(off) or '') .. ';' .. ended .. ';'
    .. (state.slot_text or '')
end

function handle.N(_, lock, key, token, milliseconds, report)
  local holder, state = call('GET', lock), load(key)
  if holder ~= node or state.token ~= tonumber(token) then
    return refused(lock, holder, state)
  end
  -- PEXPIRE first: a server at maxmemory rejects a script whose first write allocates memory.
  call('PEXPIRE', lock, milliseconds)
  local fields = progress(state, report)
  local paused, trigger = pause_ends(state), trigger_waiting(state)
  if state.off and state.off < 0 and not paused then
    fields[#fields + 1] = 'off' -- the pause ended during this term, so slots count from now on
    fields[#fields + 1] = text(wall)
  end
  if fields[1] then
    call('HSET', key, unpack(fields))
  end
  local order = paused and 'paused' or resignation_ends(state) and 'resigned' or ''
  if order == '' and trigger == '' then
    return 'N'
  end
  return 'N;' .. order .. ';' .. trigger .. ';' .. (paused and state.paused or '')
end

function handle.R(job, lock, key, number, off, unused, report)
  local holder, state = call('GET', lock), load(key)
  -- The state of another holder does not count: the state of this lease was lost or never written.
  if holder ~= node or (state.holder == node and state.seq > tonumber(number)) then
    return 'D0'
  end
  call('DEL', lock)
  news[#news + 1] = job
  local fields = progress(state, report)
  if off == '1' then
    fields[#fields + 1] = 'off'
    fields[#fields + 1] = text(-wall)
  end
  if unused == '0' and state.holder == node then
    fields[#fields + 1] = 'released'
    fields[#fields + 1] = text(state.token)
  end
  if fields[1] then
    call('HSET', key, unpack(fields))
  end
  return 'D1'
end

-- The state, if the term of this token is in force.
local function of_term(lock, key, token)
  local holder, state = call('GET', lock), load(key)
  if holder == node and state.token == tonumber(token) then
    return state
  end
end

function handle.C(_, lock, key, token, slot, mark)
  local state = of_term(lock, key, token)
  if not state then
    return 'L'
  end
  local asked, stored = tonumber(slot), barring(state)
  if asked > wall + AHEAD then
    return 'H'
  end
  if stored and asked == stored and state.slot_token == token then
    return 'C' -- requested again because the first answer was lost
  end
  if stored and asked <= stored then
    return 'T'
  end
  call('HSET', key, 'slot', slot .. ':' .. token .. ':' .. mark)
  return 'C'
end

function handle.K(_, lock, key, token, id, busy)
  local state = of_term(lock, key, token)
  if not state then
    return 'L'
  end
  local outcome = id .. ';' .. token .. ';' .. (busy == '1' and 'busy' or 'started')
  if call('HMGET', key, 'triggered')[1] == outcome then
    return 'C' -- requested again because the first answer was lost
  end
  if trigger_waiting(state) ~= id then
    return 'T'
  end
  call('HSET', key, 'trigger', '', 'triggered', outcome)
  return 'C'
end

local function packed(pause)
  return (string.gsub(pause, '[%%;]', {['%'] = '%25', [';'] = '%3B'}))
end

-- The answer to an order, which changes `fields`. `pause` is in force now, and `was` was in force before.
local function ordered(job, lock, key, outcome, fields, pause, was)
  local holder = call('GET', lock)
  if fields then
    -- A leader of release 0.1 does not read orders while `ok` is its token.
    call('HSET', key, 'ok', '', unpack(fields))
    news[#news + 1] = job
  end
  return 'O;' .. outcome .. ';' .. (holder and text(call('PTTL', lock)) or '') .. ';' .. packed(pause or '') .. ';'
    .. packed(was or '') .. ';' .. (holder or '')
end

-- Why the leader cannot follow an order. A leader of another implementation reads no orders.
local function cannot(lock, state)
  local holder = call('GET', lock)
  if holder and holder ~= state.holder then
    return 'foreign'
  end
  return pause_ends(state) and 'is-paused' or not holder and 'nobody'
end

function handle.P(job, lock, key, micros, replace, by, reason)
  local state = load(key)
  local was = pause_ends(state) and state.paused
  if was and replace == '0' then
    return ordered(job, lock, key, 'is-paused', nil, was)
  end
  local ends = micros == '' and '' or text(wall + tonumber(micros))
  local pause = ends .. ';' .. text(wall) .. ';' .. by .. ';' .. reason
  local fields = {'paused', pause}
  if not (state.off and state.off < 0) then
    fields[3], fields[4] = 'off', text(-wall)
  end
  named[#named + 1] = job
  return ordered(job, lock, key, 'paused', fields, pause, was)
end

function handle.U(job, lock, key)
  local state = load(key)
  if not pause_ends(state) then
    return ordered(job, lock, key, 'not-paused')
  end
  return ordered(job, lock, key, 'resumed', {'paused', ''}, nil, state.paused)
end

function handle.S(job, lock, key)
  local state = load(key)
  local no = cannot(lock, state)
  if no then
    return ordered(job, lock, key, no, nil, no == 'is-paused' and state.paused)
  end
  local left = call('PTTL', lock)
  local ends = text(wall + (left < 0 and RESIGNS or left * 1000))
  return ordered(job, lock, key, 'asked', {'resign', ends .. ';' .. call('GET', lock)})
end

function handle.T(job, lock, key, micros, id)
  local state = load(key)
  local no = cannot(lock, state) or trigger_waiting(state) ~= '' and 'pending'
  if no then
    return ordered(job, lock, key, no, nil, no == 'is-paused' and state.paused)
  end
  return ordered(job, lock, key, 'asked', {'trigger', text(wall + tonumber(micros)) .. ';' .. id})
end

function handle.F(job, lock, key, withdraw, id)
  local field = call('HMGET', key, 'triggered', 'finished')
  local name, outcome = match(field[1] or '', '^([^;]*);%d+;(.*)$')
  if name == id then
    local ended, how = match(field[2] or '', '^([^;]*);(%a+)$')
    return ordered(job, lock, key, ended == id and 'ran-' .. how or outcome)
  end
  local state = load(key)
  if match(state.trigger, '^%d+;(.*)$') ~= id then
    return ordered(job, lock, key, 'gone')
  end
  if trigger_waiting(state) == id and withdraw == '0' then
    return ordered(job, lock, key, 'pending')
  end
  return ordered(job, lock, key, 'withdrawn', {'trigger', ''})
end

function handle.L(job, lock, key)
  return ordered(job, lock, key, call('GET', lock) and 'led' or 'nobody')
end

function handle.D(job, lock, key)
  local state = load(key)
  if call('GET', lock) then
    return ordered(job, lock, key, 'led')
  end
  if pause_ends(state) then
    return ordered(job, lock, key, 'is-paused', nil, state.paused)
  end
  if math.max(state.token, barring(state) or 0, tonumber(state.ended) or 0) > wall - AHEAD then
    return ordered(job, lock, key, 'recent')
  end
  call('DEL', key)
  forgotten[#forgotten + 1] = job
  return ordered(job, lock, key, 'forgotten')
end

local PATTERN = {
  A = '^A;([^;]+);(%d+);(%d+);(%d+)$',
  N = '^N;([^;]+);(%d+);(%d+);(.*)$',
  R = '^R;([^;]+);(%d+);([01]);([01]);(.*)$',
  C = '^C;([^;]+);(%d+);(%d+);(.*)$',
  K = '^K;([^;]+);(%d+);([^;]*);([01])$',
  P = '^P;([^;]+);(%d*);([01]);([^;]*);(.*)$',
  U = '^U;([^;]+)$',
  S = '^S;([^;]+)$',
  T = '^T;([^;]+);(%d+);([^;]*)$',
  F = '^F;([^;]+);([01]);([^;]*)$',
  L = '^L;([^;]+)$',
  D = '^D;([^;]+)$',
}

local function serve(request, lock, key)
  local kind = string.sub(request, 1, 1)
  local job, a, b, c, d = match(request, PATTERN[kind])
  return handle[kind](job, lock, key, a, b, c, d)
end

local reply, verdicts = {text(wall), '', ''}, {}
for number = 1, #ARGV - BEFORE do
  local request, lock, key = ARGV[number + BEFORE], KEYS[2 * number], KEYS[2 * number + 1]
  local ok, verdict = pcall(serve, request, lock, key)
  if not ok then
    -- An error is a table since Redis 7, and a text before.
    verdict = 'E;' .. command .. ';' .. tostring(type(verdict) == 'table' and verdict.err or verdict)
  end
  verdicts[number] = verdict == 'N' and verdict or string.gsub(verdict, '[%%\n]', ESCAPED) -- a node id may contain these characters
end
reply[4] = table.concat(verdicts, '\n')

local function attempt(place, name, ...)
  local done = try(name, ...)
  if type(done) == 'table' and done.err then
    reply[place] = done.err
  end
end

if named[1] then
  attempt(3, 'SADD', KEYS[1], unpack(named))
end
if forgotten[1] then
  attempt(3, 'SREM', KEYS[1], unpack(forgotten))
end
if news[1] then
  attempt(2, 'PUBLISH', channel, table.concat(news, '\n'))
end
return reply
