"""Rules of evidence for peaks: pure functions on bytes and monotonic seconds, split by subject.

Nothing here reads the machine. The recorder, live views and recorded runs collect evidence and call these functions.

| module | rules for |
| --- | --- |
| `exact` | exact figures; peaks from a counter and its error |
| `process` | one process, from its high-water mark (VmHWM) and wait4 |
| `processes` | all processes of a run: the largest one, short-lived ones |
| `tree` | memory that a process tree needs, without a dedicated cgroup |
| `faults` | memory that page faults can have brought |
| `outside_faults` | memory that no page fault of the tree brought |
| `cgroup` | a process tree in a dedicated cgroup |
| `cgroup_windows` | a cgroup between two samples |
| `operation` | a part of a run: an operation, a test |
| `partial_records` | recordings that stop early, and records of other programs |
| `ranks` | memory that several runs needed together |
| `kernel_memory` | page tables and kernel stacks of processes |
| `refaults` | files read again for lack of memory |
| `stalls` | time lost for lack of memory, disk or CPU |
| `growth` | shapes of growth: memory that each repeat of an operation keeps |
| `service_growth` | growth of a service over hours |
| `heap` | free memory that an allocator keeps |
| `time_left` | time until growing memory reaches a limit |
| `estimates` | best estimates, none of which is a bound |

Sources of evidence:

* VmHWM (/proc/PID/status): the largest resident size of a process since its last exec or reset. It is readable only while
  the process lives, so the last reading is a lower bound of the final peak.
* ru_maxrss (wait4): available after the end. It is the maximum over the process and every child it waited for, hence an
  upper bound for each. It starts at the launcher's peak: at or below that floor it carries no information.
* A cgroup's peak counts every page once, and also page cache and kernel memory.
* The kernel updates process counters in per-CPU batches; `error` is the resulting uncertainty in bytes. A cgroup is
  charged in batches too (`charge_error`).
"""
