// How many threads this process should have: cores that it may use, as the scheduler and its container say.
#pragma once

#include <string>

namespace graphopt {

// Cores that the process's control groups grant it, rounded up; 0: they set no limit.
//
//   version 2   cpu.max "QUOTA PERIOD" of its group and of those above
//   version 1   cpu/cpu.cfs_quota_us, cpu.cfs_period_us
//
// root: where control groups are mounted; membership: the file that says which one the process is in.
int granted_cores(const std::string& root = "/sys/fs/cgroup",
                  const std::string& membership = "/proc/self/cgroup");

// GRAPHOPT_NUM_THREADS, or the cores of the affinity mask, at most those that are granted. Throws
// std::invalid_argument where the variable is no number from 1 on.
int default_num_threads();

}  // namespace graphopt
