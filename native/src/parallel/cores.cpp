#include "parallel/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace graphopt {
namespace {

// QUOTA / PERIOD rounded up; 0 where there is no limit.
int cores_of(double quota, double period) {
  return quota > 0.0 && period > 0.0 ? std::max(1, static_cast<int>(std::ceil(quota / period - 1e-9))) : 0;
}

// C's streams, not C++'s: facets of the locale are shared between all copies of the C++ library in a process,
// and numbers are read wrongly, or not at all, where this module's copy is not of the same version as the
// others.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open(const std::string& path) { return {std::fopen(path.c_str(), "r"), std::fclose}; }

// The first whole number of a file; 0 where there is none.
double number_of(const std::string& path) {
  long long number = 0;
  const File file = open(path);
  return file != nullptr && std::fscanf(file.get(), "%lld", &number) == 1 ? static_cast<double>(number) : 0.0;
}

// Of one group, of version 2 or 1.
int limit_of_group(const std::string& folder) {
  long long quota = 0, period = 0;
  const File file = open(folder + "/cpu.max");
  if (file != nullptr && std::fscanf(file.get(), "%lld %lld", &quota, &period) == 2)  // "max" is no number
    return cores_of(static_cast<double>(quota), static_cast<double>(period));
  return cores_of(number_of(folder + "/cpu.cfs_quota_us"), number_of(folder + "/cpu.cfs_period_us"));
}

// Lines of a text file; none where it cannot be read.
std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  const File file = open(path);
  if (file == nullptr) return lines;
  std::string line;
  for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get())) {
    if (c == '\n') {
      lines.push_back(std::move(line));
      line.clear();
    } else {
      line.push_back(static_cast<char>(c));
    }
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace

// Within a container its own group is the root of the mounted file system, whatever MEMBERSHIP calls it.
int granted_cores(const std::string& root, const std::string& membership) {
  int least = 0;
  const auto look = [&](const std::string& folder) {
    const int limit = limit_of_group(folder);
    if (limit != 0 && (least == 0 || limit < least)) least = limit;
  };
  for (const std::string& line : lines_of(membership)) {  // number:controllers:/path
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
