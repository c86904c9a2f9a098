// Arrays that can be taken back to an earlier state.
//
// While the journal records, every write of a Journaled array keeps the value that was there. `undo_to(mark)`
// puts them back in reverse order, so the bits are those of the mark. A mark costs the number of arrays, not
// of what they hold. A write for which memory is missing has changed nothing; taking back needs none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace graphopt::online {

class JournaledBase {
 public:
  virtual ~JournaledBase() = default;
  virtual std::size_t log_length() const = 0;
  virtual void undo_to(std::size_t length) = 0;
  virtual void forget() = 0;
  virtual std::int64_t log_bytes() const = 0;
};

class Journal {
 public:
  using Mark = std::vector<std::size_t>;  // length of each array's log

  bool records() const { return records_; }
  void set_records(bool records) { records_ = records; }
  void add(JournaledBase* array) { arrays_.push_back(array); }

  Mark mark() const {
    Mark mark;
    mark.reserve(arrays_.size());
    for (const JournaledBase* array : arrays_) mark.push_back(array->log_length());
    return mark;
  }
  // Arrays that are younger than the mark were empty then.
  void undo_to(const Mark& mark) {
    for (std::size_t k = 0; k < arrays_.size(); ++k) arrays_[k]->undo_to(k < mark.size() ? mark[k] : 0);
  }
  void forget() {
    for (JournaledBase* array : arrays_) array->forget();
  }
  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (const JournaledBase* array : arrays_) total += array->log_bytes();
    return total;
  }

 private:
  bool records_ = false;
  std::vector<JournaledBase*> arrays_;
};

template <class T>
class Journaled final : public JournaledBase {
 public:
  explicit Journaled(Journal& journal) : journal_(journal) { journal.add(this); }
  Journaled(const Journaled&) = delete;
  Journaled& operator=(const Journaled&) = delete;

  const T& operator[](std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }
  const T* data() const { return values_.data(); }
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }
  bool empty() const { return values_.empty(); }
  const T& back() const { return values_.back(); }

  void set(std::int64_t i, T value) {
    T& place = values_[static_cast<std::size_t>(i)];
    if (journal_.records()) keep(i, std::move(place));
    place = std::move(value);
  }
  // To change a value in place.
  T& edit(std::int64_t i) {
    T& place = values_[static_cast<std::size_t>(i)];
    if (journal_.records()) keep(i, place);
    return place;
  }
  T* edit(std::int64_t first, std::int64_t count) {
    T* const place = values_.data() + first;
    if (journal_.records()) {
      make_room(old_, count);
      log_.push_back({first, count});
      old_.insert(old_.end(), place, place + count);
    }
    return place;
  }
  // To change values that the caller puts back to the bit before anything else happens.
  T* borrow(std::int64_t first) { return values_.data() + first; }
  void write(std::int64_t first, const T* values, std::int64_t count) {
    std::copy_n(values, count, edit(first, count));
  }
  void push_back(T value) {
    make_room(values_, 1);
    if (journal_.records()) log_.push_back({kPushed, 0});
    values_.push_back(std::move(value));
  }
  void grow(std::int64_t size, const T& value = T{}) {
    while (this->size() < size) push_back(value);
  }
  T pop_back() {
    if (journal_.records()) keep(kPopped, values_.back());
    T value = std::move(values_.back());
    values_.pop_back();
    return value;
  }

  std::size_t log_length() const override { return log_.size(); }
  void undo_to(std::size_t length) override {
    for (; log_.size() > length; log_.pop_back()) {
      const Entry& entry = log_.back();
      const auto from = old_.end() - static_cast<std::ptrdiff_t>(entry.count);
      if (entry.first == kPushed) {
        values_.pop_back();
      } else if (entry.first == kPopped) {
        values_.push_back(std::move(*from));
      } else {
        std::move(from, old_.end(), values_.begin() + static_cast<std::ptrdiff_t>(entry.first));
      }
      old_.erase(from, old_.end());
    }
  }
  void forget() override {
    empty(log_);
    empty(old_);
  }
  std::int64_t log_bytes() const override {
    return static_cast<std::int64_t>(log_.size() * sizeof(Entry) + old_.size() * sizeof(T));
  }

 private:
  static constexpr std::int64_t kPushed = -1, kPopped = -2;
  static constexpr std::size_t kKeptEntries = 1 << 20;  // of a log: the next step asks for as many again
  struct Entry {
    std::int64_t first, count;
  };
  template <class Value>
  void keep(std::int64_t first, Value&& old) {
    make_room(old_, 1);
    log_.push_back({first, 1});
    old_.push_back(std::forward<Value>(old));
  }
  static void make_room(std::vector<T>& list, std::int64_t count) {
    const std::size_t size = list.size() + static_cast<std::size_t>(count);
    if (size > list.capacity()) list.reserve(std::max(size, 2 * list.capacity()));
  }
  template <class List>
  static void empty(List& list) {
    if (list.capacity() > kKeptEntries) {
      List().swap(list);
    } else {
      list.clear();
    }
  }
  Journal& journal_;
  std::vector<T> values_;
  std::vector<Entry> log_;
  std::vector<T> old_;  // `count` values of each entry
};

// int64 -> int32.
class JournaledMap final : public JournaledBase {
 public:
  explicit JournaledMap(Journal& journal) : journal_(journal) { journal.add(this); }
  JournaledMap(const JournaledMap&) = delete;
  JournaledMap& operator=(const JournaledMap&) = delete;

  static constexpr std::int32_t kMissing = -1;

  std::int32_t find(std::int64_t key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? kMissing : found->second;
  }
  void set(std::int64_t key, std::int32_t value) {
    if (journal_.records()) log_.push_back({key, find(key), {}});
    values_[key] = value;
  }
  void erase(std::int64_t key) {
    if (journal_.records()) {
      log_.push_back({key, find(key), {}});
      log_.back().erased = values_.extract(key);
    } else {
      values_.erase(key);
    }
  }

  std::size_t log_length() const override { return log_.size(); }
  void undo_to(std::size_t length) override {
    for (; log_.size() > length; log_.pop_back()) {
      Entry& entry = log_.back();
      if (!entry.erased.empty()) {
        values_.insert(std::move(entry.erased));
      } else if (entry.old == kMissing) {
        values_.erase(entry.key);
      } else {
        values_.find(entry.key)->second = entry.old;
      }
    }
  }
  void forget() override { log_.clear(); }
  std::int64_t log_bytes() const override { return static_cast<std::int64_t>(log_.size() * sizeof(log_[0])); }

 private:
  using Values = std::unordered_map<std::int64_t, std::int32_t>;
  struct Entry {
    std::int64_t key;
    std::int32_t old;
    Values::node_type erased;  // goes back as it is
  };
  Journal& journal_;
  Values values_;
  std::vector<Entry> log_;
};

}  // namespace graphopt::online
