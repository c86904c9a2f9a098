#include "linear/kept_memory.h"

#include <cstdlib>
#include <iterator>
#include <new>

#include "parallel/large_pages.h"

namespace graphopt {
namespace {

// Up to an eighth more, so that problems of about one size have pieces of the same size; whole cache lines.
std::int64_t with_room(std::int64_t bytes) {
  std::int64_t step = 64;
  while (step * 16 <= bytes) step *= 2;
  return (bytes / step + 1) * step;
}

}  // namespace

KeptMemory& KeptMemory::instance() {
  static KeptMemory& one = *new KeptMemory;
  return one;
}

KeptMemory::Piece KeptMemory::take(std::int64_t size) {
  const std::int64_t bytes = with_room(size * static_cast<std::int64_t>(sizeof(double)));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto piece = kept_.rbegin(); piece != kept_.rend(); ++piece) {
      if (piece->bytes < bytes || piece->bytes / 2 > bytes) continue;
      const Piece found = *piece;
      kept_.erase(std::next(piece).base());
      return found;
    }
  }
  auto* const data = static_cast<double*>(std::aligned_alloc(64, static_cast<std::size_t>(bytes)));
  if (data == nullptr) throw std::bad_alloc();
  ask_for_large_pages(data, bytes);
  return {data, bytes};
}

void KeptMemory::give_back(Piece piece) {
  std::vector<Piece> too_many;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_back(piece);
    std::int64_t total = 0;
    for (const Piece& one : kept_) total += one.bytes;
    while (total > kMostBytes) {
      too_many.push_back(kept_.front());
      total -= kept_.front().bytes;
      kept_.erase(kept_.begin());
    }
  }
  for (const Piece& one : too_many) std::free(one.data);
}

std::int64_t KeptMemory::bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::int64_t total = 0;
  for (const Piece& one : kept_) total += one.bytes;
  return total;
}

}  // namespace graphopt
