// Edges assigned to ranks: what is assigned as one, who sees the same, and where everything goes.
//
// All loops run on all threads. What they add are whole numbers, so the answer does not depend on how many.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "edges/order.h"

namespace graphopt::edges {

using Ranks = std::vector<std::uint16_t>;

// Kept vertices that meet in an edge or an eliminated vertex: symmetric, columns of a row ascending.
struct Covisibility {
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> neighbor, count;
};

struct Assignment {
  std::vector<std::int64_t> counts;  // edges of each rank
  std::int64_t copies;               // kept vertices of all ranks together
};

// An item is what goes to one rank as a whole: an eliminated vertex with its edges, or an edge without one.
class EdgePartition {
 public:
  // kept (num_edges, arity): kept vertex in each slot, negative: none; must outlive this object.
  // eliminated (num_edges): the edge's eliminated vertex, negative: none. Items with eliminated vertices come
  // first, by these, then edges without one.
  EdgePartition(const std::int32_t* kept, int arity, const std::int32_t* eliminated, std::int64_t num_edges,
                std::int64_t num_kept, std::int64_t num_eliminated);

  std::int64_t num_items() const { return num_items_; }
  // Edges of each item.
  std::vector<std::int64_t> weights() const;
  // Slots with each kept vertex.
  std::vector<std::int64_t> degrees() const;

  // Of the kept vertices of an item, by number, each is paired with the next one. From more than
  // max(most, 60 per kept vertex) slots every k-th item speaks for the others.
  Covisibility covisibility(std::int64_t most) const;

  // Rank of each item: items in the order of the mean place of their kept vertices (those alike: by number),
  // cut into pieces of equal weight. place (num_kept), not negative.
  Ranks slabs(const std::int32_t* place, int num_ranks) const;

  // Rank of each item: the one that most of its kept vertices have, while that one has at most `room` times
  // the mean weight; the surest stay. label (num_kept): rank of each kept vertex.
  Ranks nearest(const std::int32_t* label, int num_ranks, double room) const;

  // Of ranks of items; writes the rank of each edge (num_edges).
  Assignment assign(const std::uint16_t* ranks, int num_ranks, std::uint16_t* edges) const;

 private:
  // visit(kept vertex) for each slot of an item that has one.
  template <class Visit>
  void for_each_kept(std::int64_t item, const Visit& visit) const {
    for (std::uint32_t e = first_[static_cast<std::size_t>(item)];
         e < first_[static_cast<std::size_t>(item) + 1]; ++e) {
      const std::int32_t* slots = kept_ + std::int64_t{order_[static_cast<std::size_t>(e)]} * arity_;
      for (int slot = 0; slot < arity_; ++slot)
        if (slots[slot] >= 0) visit(slots[slot]);
    }
  }
  std::int64_t weight(std::int64_t item) const {
    return std::int64_t{first_[static_cast<std::size_t>(item) + 1]} - first_[static_cast<std::size_t>(item)];
  }
  void move_what_has_no_room(Ranks& ranks, const std::vector<double>& sure, int num_ranks, double room) const;

  const std::int32_t* kept_;
  int arity_;
  std::int64_t num_edges_, num_kept_, num_items_;
  // Not initialised, so that the threads that fill them touch their memory first.
  std::unique_ptr<std::int32_t[]> item_;    // of each edge
  std::unique_ptr<std::uint32_t[]> order_;  // edges order_[first_[i]] .. of item i
  std::vector<std::uint32_t> first_;
};

}  // namespace graphopt::edges
