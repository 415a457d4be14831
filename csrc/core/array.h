// Uninitialised arrays that return their memory to the system.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace suffolk {

// An array of numbers, not initialised. Large arrays are mapped, so that freeing an array returns its memory to the system
// immediately. The heap would keep the memory, and fragment it. Throws std::bad_alloc.
template <typename T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  explicit Array(std::size_t size) : size_(size) {
    if (!is_mapped()) {
      data_ = static_cast<T*>(::operator new(bytes()));
      return;
    }
    void* const at = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(at);
  }
  Array(Array&& from) noexcept : data_(std::exchange(from.data_, nullptr)), size_(std::exchange(from.size_, 0)) {}
  Array& operator=(Array&& from) noexcept {
    std::swap(data_, from.data_);
    std::swap(size_, from.size_);
    return *this;
  }
  ~Array() {
    if (is_mapped()) {
      ::munmap(data_, bytes());
    } else {
      ::operator delete(data_);
    }
  }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  operator std::span<T>() noexcept { return {data_, size_}; }

 private:
  static constexpr std::size_t kMapped = 1 << 16;  // bytes; an array of this size or larger is mapped
  bool is_mapped() const noexcept { return bytes() >= kMapped; }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace suffolk
