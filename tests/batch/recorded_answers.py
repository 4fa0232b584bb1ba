"""What the programs of batch systems print: recorded form, names and numbers changed. Seconds are of the
system's clock; local times are written as this machine would."""

import time
from textwrap import dedent


def ctime(at):
    """As PBS writes it."""
    return time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(at))


def iso(at):
    """As Grid Engine writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))


def month_and_day(at):
    """As LSF writes it."""
    return time.strftime("%b %e %H:%M", time.localtime(at))


def squeue(*rows, comment=""):
    """Id, state, used, left, end, start, restarts, reason: with the widths that are asked for."""
    widths = (24, 24, 24, 24, 24, 24, 12, 60, 120)
    rows = ((*row[:-1], comment, row[-1]) for row in rows)
    lines = ("".join(f"{word:<{width}}|" for word, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line}\n" for line in lines)


def qstat_f(job, state, now, *more, walltime="01:00:00", started=None, comment=None, hold="n", runs=1):
    """One job of PBS Pro, as ``qstat -f`` prints it."""
    lines = [
        f"Job Id: {job}.pbs-server",
        "    Job_Name = dask-worker",
        "    Job_Owner = somebody@login-1.example.org",
        *(["    resources_used.walltime = 00:09:58"] if started else []),
        f"    job_state = {state}",
        "    queue = workq",
        "    server = pbs-server",
        "    Checkpoint = u",
        f"    ctime = {ctime(now - 700)}",
        "    Error_Path = login-1.example.org:/home/somebody/a/path/that/is/long/dask-wo",
        f"\trker.e{job}",
        f"    Hold_Types = {hold}",
        "    Join_Path = n",
        "    Priority = 0",
        f"    qtime = {ctime(now - 700)}",
        "    Rerunable = True",
        "    Resource_List.mem = 8gb",
        "    Resource_List.ncpus = 4",
        "    Resource_List.nodect = 1",
        "    Resource_List.select = 1:ncpus=4:mem=8GB",
        f"    Resource_List.walltime = {walltime}",
        *([f"    stime = {ctime(started)}"] if started else []),
        "    substate = 42",
        "    Variable_List = PBS_O_HOME=/home/somebody,PBS_O_LANG=C,SEVEN=007,",
        "\tBASH_FUNC_module%%=() {  eval `/usr/bin/modulecmd bash $*`,",
        "\t    job_state = X",
        "    comment = " + (comment or "Job run at Wed Apr 14 at 23:34 on (n1:ncpus=4)"),
        f"    etime = {ctime(now - 700)}",
        f"    run_count = {runs}",
        "    Submit_arguments = /tmp/tmp1.sh",
        "    project = _pbs_project_default",
        *more,
    ]
    return "\n".join(lines) + "\n\n"


def qstat_json(now):
    """Two jobs of OpenPBS, as ``qstat -f -F json`` prints them."""
    return dedent(
        f"""\
        {{
            "timestamp":{int(now)},
            "pbs_version":"23.06.06",
            "pbs_server":"pbs-server",
            "Jobs":{{
                "7.pbs-server":{{
                    "Job_Name":"dask-worker",
                    "resources_used":{{
                        "cpupercent":0,
                        "ncpus":4,
                        "walltime":"00:09:58"
                    }},
                    "job_state":"R",
                    "Hold_Types":"n",
                    "Resource_List":{{
                        "ncpus":4,
                        "walltime":"01:00:00"
                    }},
                    "stime":"{ctime(now - 600)}",
                    "run_count":2
                }},
                "8.pbs-server":{{
                    "Job_Name":"dask-worker",
                    "job_state":"Q",
                    "Hold_Types":"n",
                    "comment":"Not Running: Insufficient amount of resource: ncpus",
                    "estimated":{{
                        "exec_vnode":"(n1:ncpus=4)",
                        "start_time":"{ctime(now + 300)}"
                    }}
                }}
            }}
        }}
        """
    )


def bjobs(*rows):
    """As ``bjobs -json -o`` prints what is asked for."""
    import json

    return json.dumps({"COMMAND": "bjobs", "JOBS": len(rows), "RECORDS": list(rows)}, indent=2)


def bjob(job, stat, **more):
    """One record; what does not apply is empty."""
    empty = ("PEND_REASON", "RUN_TIME", "TIME_LEFT", "ESTIMATED_START_TIME", "EXIT_REASON")
    return {"JOBID": job, "STAT": stat, **dict.fromkeys(empty, ""), **more}


def qstat_xml(running="", pending=""):
    """As ``qstat -r -xml`` prints them."""
    head = "http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd"
    return (
        f"<?xml version='1.0'?>\n<job_info  xmlns:xsd=\"{head}\">\n  <queue_info>\n{running}  </queue_info>\n"
        f"  <job_info>\n{pending}  </job_info>\n</job_info>\n"
    )


def qstat_row(job, state, started=None, h_rt=None):
    """One job of it."""
    kind = "running" if started else "pending"
    when = (
        f"<JAT_start_time>{iso(started)}</JAT_start_time>"
        if started
        else ("<JB_submission_time>2026-11-26T08:00:00</JB_submission_time>")
    )
    limit = f'      <hard_request name="h_rt" resource_contribution="0.000000">{h_rt}</hard_request>\n'
    return (
        f'    <job_list state="{kind}">\n'
        f"      <JB_job_number>{job}</JB_job_number>\n"
        "      <JAT_prio>0.55500</JAT_prio>\n"
        "      <JB_name>dask-worker</JB_name>\n"
        "      <JB_owner>somebody</JB_owner>\n"
        f"      <state>{state}</state>\n"
        f"      {when}\n"
        f"      <queue_name>{'main.q@n1' if started else ''}</queue_name>\n"
        "      <slots>4</slots>\n"
        "      <full_job_name>dask-worker</full_job_name>\n"
        f"{limit if h_rt else ''}"
        "    </job_list>\n"
    )


def oarstat(**jobs):
    """As ``oarstat -u -J`` prints them, by id after the letter j."""
    import json

    whole = {
        job[1:]: {
            "types": [],
            "reservation": "None",
            "dependencies": [],
            "Job_Id": int(job[1:]),
            "assigned_network_address": [],
            "owner": "somebody",
            "queue": "default",
            "array_index": 1,
            "array_id": int(job[1:]),
            "name": "dask-worker",
            "resubmit_job_id": 0,
            "jobType": "PASSIVE",
            "project": "default",
            "startTime": 0,
            **row,
        }
        for job, row in jobs.items()
    }
    return json.dumps(whole, indent=3)
