#include "vulkan/rank_loop.h"

#include <algorithm>
#include <chrono>
#include <limits>
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

// The vectors are on the device; a submission does all of an iteration.
class DeviceVectors {
 public:
  DeviceVectors(RankBarrier& barrier, int rank, const RankLoop& loop)
      : barrier_(barrier),
        rank_(rank),
        loop_(loop),
        message_(loop.message, loop.rows + tail, loop.is_double, "message of a rank"),
        sums_(loop.total, loop.rows + 2, loop.is_double, "sum of the ranks"),
        mine_(loop.rows + tail),
        total_(mine_.size()) {}

  double start() {
    message_.read(mine_);
    const Clock::time_point start = Clock::now();
    barrier_.sum(rank_, mine_.data(), total_.data(), total_.size());
    seconds += std::chrono::duration<double>(Clock::now() - start).count();
    const double* const end = total_.data() + loop_.rows;
    products_ = end[2] + end[3];
    residual_ = end[4] != 0.0 ? std::numeric_limits<double>::quiet_NaN() : end[0] + end[1];
    return residual_;
  }

  double curvature(double beta) {
    beta_ = beta;
    return merged_curvature(products_, residual_, alpha_, beta);
  }

  double step(double alpha) {
    alpha_ = alpha;
    const double scalars[2] = {alpha, beta_};
    sums_.write(total_.data(), loop_.rows, 0);
    sums_.write(scalars, 2, loop_.rows);
    run(loop_, num_steps_++);
    return start();
  }

  double seconds = 0.0;  // communicating

 private:
  RankBarrier& barrier_;
  const int rank_;
  const RankLoop& loop_;
  const Numbers message_, sums_;
  std::vector<double> mine_, total_;
  double products_ = 0.0, residual_ = 0.0, alpha_ = 0.0, beta_ = 0.0;
  std::int64_t num_steps_ = 0;
};

}  // namespace

RankOutcome iterate_ranks(RankBarrier& barrier, int rank, const RankLoop& loop, const ConjugateRule& rule) {
  DeviceVectors vectors(barrier, rank, loop);
  const ConjugateOutcome outcome = conjugate_gradients(vectors, rule);
  return {outcome, vectors.seconds};
}

}  // namespace graphopt::vulkan
