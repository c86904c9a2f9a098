#include "parallel/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace graphopt {
namespace {

// QUOTA / PERIOD rounded up; 0 where there is no such file, or no limit in it.
int cores_of(double quota, double period) {
  if (!(quota > 0.0) || !(period > 0.0)) return 0;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

int limit_of_group(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0.0, period = 0.0;
  return file >> quota >> period ? cores_of(quota, period) : 0;  // "max" is no number
}

int limit_of_first_version(const std::string& folder) {
  std::ifstream quotas(folder + "/cpu.cfs_quota_us"), periods(folder + "/cpu.cfs_period_us");
  double quota = 0.0, period = 0.0;
  return quotas >> quota && periods >> period ? cores_of(quota, period) : 0;
}

int smaller(int limit, int other) { return limit == 0 || (other != 0 && other < limit) ? other : limit; }

}  // namespace

int granted_cores(const std::string& root, const std::string& membership) {
  int limit = smaller(limit_of_group(root), limit_of_first_version(root + "/cpu"));
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3); !path.empty() && path != "/"; path.resize(path.rfind('/')))
      limit = smaller(limit, limit_of_group(root + path));
  }
  return limit;
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
