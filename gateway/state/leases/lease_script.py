"""The server-side lease script. It handles any number of counters of one hash tag in one round trip.

A counter is a hash with these fields:

- `g`: its generation, which changes when the counter is created again;
- `e`: the server's epoch; a worker that is new to the counter does not trust a counter of another epoch;
- `s`: units settled; `w`: units that each worker holds;
- `t`: Unix ms until which units are short; until then, no units are leased before they are needed;
- `z`: whether the sum must be rebuilt from the ledger; `r`: units that were settled after this became necessary, and
  that the ledger may lack;
- `a`: time at which the counter's base (the settled units according to the ledger) was read;
- `q`: Unix ms until which nothing is granted;
- only for rates: `b<step>`: units used in this step of 100 ms; `o`: the oldest of these steps; `l`: the latest.

A dead worker may have spent all units that it leased of a sum. Only its journal shows how many. So all these units
stay held, even if the sum is rebuilt, until the journal is in the ledger and the caller names the worker among the
`drained`. Then the sum is rebuilt and the lease is dropped. A backend may have sent tokens that the dead worker did
not read. Such tokens are in no ledger. For them, a hundredth of the units that the worker had in use counts as
settled.

Numbers are integers below 2^53, because Lua computes in doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from gateway.state.redis.connection import Script

STEP_MS = 100
WINDOW_STEPS = 600
"""Length of a rate's sliding window in steps: 60 s in steps of 100 ms. A use leaves the window after 59.9 to 60 s."""


class Status(IntEnum):
    """The server's answer for one counter."""

    GRANTED = 0
    SHORT = 1
    CHANGED = 2
    """The counter has another generation than the one that the worker knows. The script has changed nothing. The worker
    must report again all units that are not in the counter's base, which was read from the ledger."""
    UNKNOWN = 3
    """The counter is a sum without a base (the settled units that a worker reads from the ledger). The script has
    changed nothing and needs the base."""
    SETTLING = 4
    """The counter was created a moment ago. The server grants nothing until every worker has reported its holds."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The server's reply for one counter. `units`: units that this worker has reserved. `rest`: units that are
    still free.
    """

    status: Status
    units: int
    rest: int
    settled: int
    retry_ms: int
    idle: int
    """Units that other workers have leased and do not use."""
    held: int
    """Units that other workers have in use."""
    workers: int
    tight: bool
    stale: bool
    generation: str
    since: int
    """Time, in marks of 10 ms, at which the counter's base (the units settled so far) was read from the ledger."""
    holders: tuple[str, ...]
    """Names of other workers that hold units. Set only if units are short."""
    orphans: str
    """Units of a sum that are held for dead workers, as text: `NAME=UNITS NAME=UNITS`."""


def parse(reply: list[Any]) -> tuple[int, list[Reply]]:
    """Parse the result of the script. Returns (the server's clock in Unix ms, one reply per counter)."""
    now, *answers = reply
    return now, [_reply(*answer) for answer in answers]


def _reply(status: int, *numbers: Any) -> Reply:
    units, rest, settled, retry_ms, idle, held, workers, tight, stale, generation, since, holders, orphans = numbers
    return Reply(
        *(Status(status), units, rest, settled, retry_ms, idle, held, workers),
        tight=tight == 1,
        stale=stale == 1,
        generation=generation.decode(),
        since=since,
        holders=tuple(holders.decode().split()),
        orphans=orphans.decode(),
    )


SYNC = Script(
    "leases",
    """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local step = math.floor(now / 100)
local worker, ttl, lost, epoch = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', ARGV[4]
local dead, drained = {}, {}
for name in string.gmatch(ARGV[5], '%S+') do dead[name] = true end
for name in string.gmatch(ARGV[6], '%S+') do drained[name] = true end

local function int(number) return string.format('%.0f', number) end

local function is_drained(name) return drained[name] or drained['*'] end

local function entry(name, units, used, expires, last)
  return name .. '=' .. int(units) .. '=' .. int(used) .. '=' .. int(expires) .. '=' .. last .. ';'
end

local function since(uses, mark)
  local sum, last = 0, 0
  for at, amount in string.gmatch(uses, '(%d+):(-?%d+)') do
    last = math.max(last, tonumber(at))
    if tonumber(at) >= mark then sum = sum + amount end
  end
  return sum, last
end

local function slide(key, c)
  if c.l <= step - 600 then
    redis.call('DEL', key)
    c.s, c.o = 0, step
    return
  end
  while c.o <= step - 600 do
    local used = redis.call('HGET', key, 'b' .. int(c.o))
    if used then
      c.s = c.s - used
      redis.call('HDEL', key, 'b' .. int(c.o))
    end
    c.o = c.o + 1
  end
end

local function use(key, c, kind, uses)
  for at, amount in string.gmatch(uses, '(%d+):(-?%d+)') do
    at, amount = tonumber(at), tonumber(amount)
    if kind ~= 'rate' then
      c.s = c.s + amount
      c.r = c.z and c.r .. int(at) .. ':' .. int(amount) .. ',' or ''
    else
      at = math.min(at, step)
      if at > step - 600 then
        if redis.call('HINCRBY', key, 'b' .. int(at), int(amount)) == 0 then
          redis.call('HDEL', key, 'b' .. int(at))
        end
        c.s, c.o, c.l = c.s + amount, math.min(c.o, at), math.max(c.l, at)
      end
    end
  end
end

local function free_at(key, c, missing)
  for at = c.o, step do
    missing = missing - (tonumber(redis.call('HGET', key, 'b' .. int(at))) or 0)
    if missing <= 0 then return (at + 600) * 100 - now end
  end
  return 0
end

local function sync(i, key)
  local a = 6 + (i - 1) * 12
  local kind, known, seq, limit = ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
  local floor, busy, need = tonumber(ARGV[a + 5]), tonumber(ARGV[a + 6]), tonumber(ARGV[a + 7])
  local least, ahead, base = tonumber(ARGV[a + 8]), tonumber(ARGV[a + 9]), ARGV[a + 10]
  local uses, life = ARGV[a + 11], ARGV[a + 12]
  local f = redis.call('HMGET', key, 'g', 's', 'w', 'o', 'l', 't', 'z', 'a', 'q', 'e', 'r')
  if f[1] and known == '' and epoch ~= '' and f[10] ~= epoch then
    redis.call('DEL', key)
    f = {}
  end
  local c = {g = f[1], s = tonumber(f[2]) or 0, o = tonumber(f[4]) or step, l = tonumber(f[5]) or step,
             t = tonumber(f[6]) or 0, z = f[7] == '1', a = tonumber(f[8]) or 0, q = tonumber(f[9]) or 0,
             r = f[11] or ''}
  local anew, before = false, c.s
  if not c.g or (c.z and base ~= '') then
    if kind == 'sum' and base == '' then return {3, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', 0, '', ''} end
    if not c.g and kind == 'sum' and (lost or known ~= '') then c.q = now + 1000 end
    anew, c.z = true, false
    c.g = worker .. '.' .. int(now) .. '.' .. i
    if base ~= '' then
      local amount, at = string.match(base, '(%d+):(%d+)')
      c.s, c.a, c.r = tonumber(amount) + since(c.r, tonumber(at) - 2), tonumber(at), ''
    end
  end
  local others, idle, workers, mine, own = 0, 0, 1, nil, {0, 0, 0}
  local entries, holders, orphans, met, undrained, dropped = {}, {}, '', anew and {}, false, 0
  for name, units, used, expires, last in string.gmatch(f[3] or '', '([^=;]+)=(%d+)=(%d+)=(%d+)=(%d+);') do
    units, used, expires = tonumber(units), tonumber(used), tonumber(expires)
    if anew then last, met[name] = '0', true end
    if name == worker then
      mine, own = tonumber(last), {units, used, expires}
    else
      if dead[name] then expires = 0 end
      if units > 0 then holders[#holders + 1] = name end
      if expires > now then
        others, idle, workers = others + units, idle + math.max(units - used, 0), workers + 1
      elseif units > 0 and kind == 'sum' and not (anew and is_drained(name)) then
        others, orphans = others + units, orphans .. name .. '=' .. int(units) .. ' '
        if is_drained(name) then c.z = true else undrained = true end
      else
        if units > 0 and kind == 'sum' then c.s, dropped = c.s + math.ceil(used / 100), dropped + units end
        units, used = 0, 0
      end
      if units > 0 or expires + 600000 > now then
        entries[#entries + 1] = entry(name, units, used, expires, last)
      end
    end
  end
  if anew then
    for name, units in string.gmatch(base, ' ([^= ]+)=(%d+)') do
      if name ~= worker and not met[name] and not is_drained(name) then
        others, orphans, undrained = others + units, orphans .. name .. '=' .. units .. ' ', true
        entries[#entries + 1] = entry(name, units, units, 0, '0')
      end
    end
    -- The base lacks what other hosts have not drained yet: never less than was known before. Where that is much,
    -- because a worker is dead and not drained, leases dropped now count as spent until it is.
    c.s = math.max(c.s, before + (undrained and dropped or 0))
  end
  local changed = known ~= '' and known ~= c.g
  if not changed and kind == 'sum' and known ~= '' and (not mine or (mine > 0 and mine < seq - 1)) then
    redis.call('HSET', key, 'z', '1')
    return {3, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', 0, '', ''}
  end
  if kind == 'rate' then slide(key, c) end
  local status, units, rest, retry = 2, 0, 0, 0
  if changed then
    entries[#entries + 1] = entry(worker, own[1], own[2], own[3], int(mine or 0))
  else
    if mine ~= seq then use(key, c, kind, uses) end
    status, units, rest = 0, floor, limit - c.s - others - floor
    if need > 0 then
      if now < c.q then
        status = 4
      elseif rest >= math.min(need, least) then
        local more = math.min(need, rest)
        units, rest = units + more, rest - more
      else
        status, c.t = 1, now + 2000
        if kind == 'rate' then retry = free_at(key, c, least - rest) end
      end
    end
    if status == 0 and ahead > 0 and now >= c.t and now >= c.q then
      local more = math.min(ahead, math.floor(math.max(rest, 0) / 8))
      units, rest = units + more, rest - more
    end
    entries[#entries + 1] = entry(worker, units, busy, now + ttl, int(seq))
  end
  if #c.r > 4096 then
    local sum, last = since(c.r, 0)
    c.r = int(last) .. ':' .. int(sum) .. ','
  end
  redis.call('HSET', key, 'r', c.r, 'g', c.g, 's', int(c.s), 'w', table.concat(entries), 'o', int(c.o), 'l', int(c.l),
             't', int(c.t), 'z', c.z and '1' or '0', 'a', int(c.a), 'q', int(c.q), 'e', epoch)
  if kind == 'sum' and others + units > 0 then life = math.max(tonumber(life), 2592000000) end
  redis.call('PEXPIRE', key, life)
  return {status, units, rest, c.s, retry, idle, others - idle, workers, now < c.t and 1 or 0, c.z and 1 or 0, c.g, c.a,
          (status == 1 or status == 4) and table.concat(holders, ' ') or '', orphans}
end

local replies = {now}
for i, key in ipairs(KEYS) do replies[i + 1] = sync(i, key) end
return replies
""",
)
