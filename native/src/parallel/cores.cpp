#include "parallel/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace graphopt {
namespace {

// QUOTA / PERIOD rounded up; 0 where there is no limit.
int cores_of(double quota, double period) {
  return quota > 0.0 && period > 0.0 ? std::max(1, static_cast<int>(std::ceil(quota / period - 1e-9))) : 0;
}

double number_of(const std::string& path) {
  double number = 0.0;
  std::ifstream(path) >> number;
  return number;
}

// Of one group, of version 2 or 1.
int limit_of_group(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0.0, period = 0.0;
  if (file >> quota >> period) return cores_of(quota, period);  // "max" is no number
  return cores_of(number_of(folder + "/cpu.cfs_quota_us"), number_of(folder + "/cpu.cfs_period_us"));
}

}  // namespace

// Within a container its own group is the root of the mounted file system, whatever MEMBERSHIP calls it.
int granted_cores(const std::string& root, const std::string& membership) {
  int least = 0;
  const auto look = [&](const std::string& folder) {
    const int limit = limit_of_group(folder);
    if (limit != 0 && (least == 0 || limit < least)) least = limit;
  };
  std::ifstream groups(membership);
  for (std::string line; std::getline(groups, line);) {  // number:controllers:/path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    std::vector<std::string> mounts{root};
    if (!controllers.empty()) mounts = {root + "/cpu", root + "/" + controllers};
    for (const std::string& mount : mounts) {
      for (std::string path = line.substr(second + 1); !path.empty() && path[0] == '/';
           path.erase(path.rfind('/')))
        look(mount + path);
      look(mount);
    }
  }
  return least;
}

int default_num_threads() {
  if (const char* text = std::getenv("GRAPHOPT_NUM_THREADS")) {
    char* end = nullptr;
    const long count = std::strtol(text, &end, 10);
    if (end == text || *end != '\0' || count < 1) {
      throw std::invalid_argument(
          "GRAPHOPT_NUM_THREADS is '" + std::string(text) +
          "', expected a whole number of at least 1. Unset it to use all cores of this process.");
    }
    return static_cast<int>(std::min(count, 1L << 20));
  }
  int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
#endif
  const int granted = granted_cores();
  return granted == 0 ? cores : std::min(cores, granted);
}

}  // namespace graphopt
