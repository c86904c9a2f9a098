// A temporary file beside the target, locked as long as its writer lives, then renamed: names and rules are
// those of graphopt/temporary_files.py.
#include "files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>

#include "error.h"

namespace graphopt::embed {
namespace {

constexpr std::size_t kTokenDigits = 12;
constexpr std::time_t kDay = 86400;  // [s]

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  const int number_;
};

[[noreturn]] void fail(const std::string& path, int error, const char* what = "written") {
  throw Error(GRAPHOPT_FILE_ERROR,
              path + ": the file cannot be " + what + " (" + std::strerror(error) + ").");
}

std::string host() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return std::string(name).substr(0, 64);
}

std::string token() {
  std::random_device random;
  std::string digits;
  while (digits.size() < kTokenDigits) digits += "0123456789abcdef"[random() % 16];
  return digits;
}

// The host in `.NAME.TOKEN@HOST.tmp`; empty: another program's name.
std::string host_of(const std::string& name) {
  const std::string suffix = ".tmp";
  const std::size_t at = name.rfind('@');
  if (name[0] != '.' || at == std::string::npos || at < kTokenDigits + 2 ||
      name.size() < at + 1 + suffix.size())
    return "";
  if (name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) return "";
  if (name[at - kTokenDigits - 1] != '.') return "";
  if (name.find_first_not_of("0123456789abcdef", at - kTokenDigits) != at) return "";
  return name.substr(at + 1, name.size() - suffix.size() - at - 1);
}

void remove_abandoned(const std::string& folder) {
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    const std::string owner = host_of(entry->d_name);
    if (owner.empty()) continue;
    const std::string path = folder + "/" + entry->d_name;
    const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat state {};
    if (file.number() < 0 || fstat(file.number(), &state) != 0 || !S_ISREG(state.st_mode)) continue;
    if (owner != host() && std::time(nullptr) - state.st_mtime < kDay) continue;
    if (flock(file.number(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
  closedir(entries);
}

bool write_all(int file, const std::string& content) {
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t count = write(file, content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

// Where a link leads to; the path itself where there is nothing yet.
std::string resolved(const std::string& path) {
  char* const real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  const std::string result = real;
  std::free(real);
  return result;
}

// Pipes and terminals have no content to keep.
void write_directly(const std::string& path, const std::string& content) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.number() < 0 || !write_all(file.number(), content)) fail(path, errno);
}

}  // namespace

std::string read_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) fail(path, errno, "read");
  std::string content;
  std::string piece(std::size_t{1} << 20, '\0');
  for (;;) {
    const ssize_t count = read(file.number(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path, errno, "read");
    if (count == 0) return content;
    content.append(piece, 0, static_cast<std::size_t>(count));
  }
}

void write_whole_file(const std::string& path, const std::string& content) {
  struct stat old {};
  const bool is_there = stat(path.c_str(), &old) == 0;
  if (is_there && S_ISDIR(old.st_mode)) fail(path, EISDIR);
  if (is_there && !S_ISREG(old.st_mode)) return write_directly(path, content);
  if (is_there && access(path.c_str(), W_OK) != 0) fail(path, errno);
  const std::string target = resolved(path);
  const std::size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
  const std::string name = target.substr(slash + 1).substr(0, 100);
  remove_abandoned(folder);
  for (;;) {
    const std::string temporary = folder + "/." + name + "." + token() + "@" + host() + ".tmp";
    const Descriptor file(open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
    if (file.number() < 0) fail(path, errno);
    (void)flock(file.number(), LOCK_EX);  // where a file system has no locks, nothing is taken for abandoned
    if (access(temporary.c_str(), F_OK) != 0) continue;  // it was, before it had its lock
    const bool good = write_all(file.number(), content) &&
                      (!is_there || fchmod(file.number(), old.st_mode & 07777) == 0) &&
                      fsync(file.number()) == 0 && std::rename(temporary.c_str(), target.c_str()) == 0;
    if (!good) {
      const int error = errno;
      unlink(temporary.c_str());
      fail(path, error);
    }
    break;
  }
  const Descriptor parent(open(folder.c_str(), O_RDONLY | O_CLOEXEC));
  if (parent.number() >= 0) (void)fsync(parent.number());  // the rename itself; not every file system can
}

}  // namespace graphopt::embed
