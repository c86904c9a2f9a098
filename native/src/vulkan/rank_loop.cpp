#include "vulkan/rank_loop.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace graphopt::vulkan {

namespace {

constexpr std::uint64_t tail = 5;  // numbers behind the rows of a message
using Clock = std::chrono::steady_clock;

// Numbers in mapped memory, as float64.
class Numbers {
 public:
  Numbers(const std::shared_ptr<Buffer>& buffer, std::uint64_t count, bool is_double, const char* what)
      : bytes_(buffer->mapped()), is_double_(is_double) {
    if (bytes_ == nullptr) throw DeviceError(std::string("The ") + what + " is not visible to the host.");
    if (count * (is_double ? 8 : 4) > buffer->size())
      throw DeviceError(std::string("The ") + what + " has fewer than " + std::to_string(count) +
                        " numbers.");
  }
  void read(std::vector<double>& to) const {
    if (is_double_) {
      std::copy_n(reinterpret_cast<const double*>(bytes_), to.size(), to.begin());
    } else {
      std::copy_n(reinterpret_cast<const float*>(bytes_), to.size(), to.begin());
    }
  }
  void write(const double* from, std::uint64_t count, std::uint64_t first) const {
    if (is_double_) {
      std::copy_n(from, count, reinterpret_cast<double*>(bytes_) + first);
    } else {
      std::transform(from, from + count, reinterpret_cast<float*>(bytes_) + first,
                     [](double value) { return static_cast<float>(value); });
    }
  }

 private:
  char* bytes_;
  bool is_double_;
};

void run(const RankLoop& loop, std::int64_t number) {
  const auto& programs = loop.advance.at(static_cast<std::size_t>(number) % loop.advance.size());
  std::vector<std::unique_ptr<Ticket>> tickets;
  for (const auto& program : programs) tickets.push_back(std::make_unique<Ticket>(program));
  for (const auto& ticket : tickets) ticket->wait(loop.timeout_s);
}

}  // namespace

RankOutcome iterate_ranks(Meeting& meeting, int rank, const RankLoop& loop, const ConjugateRule& rule) {
  const Numbers message(loop.message, loop.rows + tail, loop.is_double, "message of a rank");
  const Numbers sums(loop.total, loop.rows + 2, loop.is_double, "sum of the ranks");
  std::vector<double> mine(loop.rows + tail), total(mine.size());
  const double* end = total.data() + loop.rows;
  ConjugateSteps steps(rule);
  double seconds = 0.0;
  while (true) {
    message.read(mine);
    const Clock::time_point start = Clock::now();
    meeting.sum(rank, mine.data(), total.data(), total.size());
    seconds += std::chrono::duration<double>(Clock::now() - start).count();
    if (!steps.take(end[0] + end[1], end[2] + end[3], end[4] != 0.0)) break;
    const double scalars[2] = {steps.alpha, steps.beta};
    sums.write(total.data(), loop.rows, 0);
    sums.write(scalars, 2, loop.rows);
    run(loop, steps.iterations());
  }
  return {steps.iterations(), steps.is_definite, seconds};
}

}  // namespace graphopt::vulkan
