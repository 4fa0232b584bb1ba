"""The three queue strategies as a textbook would run them: slow, plain, sharing no code with ours.

Jobs are tuples (submit, nodes, runtime, walltime), sorted by submit; the answer is each job's start.
"""

from math import inf


def textbook(jobs, machine, strategy):
    starts = {}
    running = []  # (expected end, true end, nodes, job)
    waiting = []
    promised = {}
    events = sorted({submit for submit, *_ in jobs})
    while events:
        now = events.pop(0)
        ended = [r for r in running if r[1] <= now]
        running = [r for r in running if r[1] > now]
        waiting += [j for j, job in enumerate(jobs) if job[0] == now and j not in starts and j not in waiting]
        waiting = [j for j in waiting if jobs[j][1] <= machine]
        chosen = STRATEGIES[strategy](jobs, machine, now, running, list(waiting), promised, bool(ended))
        for j in chosen:
            _submit, nodes, runtime, walltime = jobs[j]
            starts[j] = now
            waiting.remove(j)
            end = now + min(runtime, walltime)
            running.append((now + walltime, end, nodes, j))
            events = sorted({*events, end})
    return starts


def _idle(machine, running):
    return machine - sum(r[2] for r in running)


def _fcfs(jobs, machine, now, running, waiting, promised, ended):
    idle = _idle(machine, running)
    chosen = []
    for j in waiting:
        if jobs[j][1] > idle:
            break
        idle -= jobs[j][1]
        chosen.append(j)
    return chosen


def _easy(jobs, machine, now, running, waiting, promised, ended):
    chosen = _fcfs(jobs, machine, now, running, waiting, promised, ended)
    held = [(r[0], r[2]) for r in running] + [(now + jobs[j][3], jobs[j][1]) for j in chosen]
    idle = machine - sum(n for _, n in held)
    rest = [j for j in waiting if j not in chosen]
    if not rest:
        return chosen
    head = jobs[rest[0]]
    for shadow in sorted({end for end, _ in held}):
        free = machine - sum(n for end, n in held if end > shadow)
        if free >= head[1]:
            break
    extra = free - head[1]
    for j in rest[1:]:
        _, nodes, _, walltime = jobs[j]
        if nodes > idle:
            continue
        if now + walltime <= shadow:
            pass
        elif nodes <= extra:
            extra -= nodes
        else:
            continue
        idle -= nodes
        chosen.append(j)
    return chosen


def _usage(held, time):
    return sum(n for start, end, n in held if start <= time < end)


def _anchor(held, machine, now, nodes, length):
    for start in sorted({now, *(end for _, end, _ in held if end > now)}):
        points = [start, *(s for s, _, _ in held if start < s < start + length)]
        if all(_usage(held, p) + nodes <= machine for p in points):
            return start
    return inf


def _conservative(jobs, machine, now, running, waiting, promised, ended):
    base = [(-inf, r[0], r[2]) for r in running]
    known = [j for j in waiting if j in promised]
    if ended:
        for j in known:
            others = [(promised[k], promised[k] + jobs[k][3], jobs[k][1]) for k in known if k != j]
            promised[j] = _anchor(base + others, machine, now, jobs[j][1], jobs[j][3])
    for j in waiting:
        if j not in promised:
            others = [(promised[k], promised[k] + jobs[k][3], jobs[k][1]) for k in waiting if k in promised]
            promised[j] = _anchor(base + others, machine, now, jobs[j][1], jobs[j][3])
    return [j for j in waiting if promised[j] <= now]


STRATEGIES = {"fcfs": _fcfs, "easy-backfill": _easy, "conservative-backfill": _conservative}
