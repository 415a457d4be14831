#include "drafting/pass_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace suffolk::drafting {
namespace {

// Standard deviations of the errors of a measured curve, as logarithms: one that neighbouring sizes share, one of each size.
constexpr double kShape = 0.2, kPoint = 0.1;
constexpr double kNeighbours = 3;  // doublings of the rows over which the shared error keeps about a third of its correlation
// Standard deviation of the logarithm of the device's speed at first, and of its change from pass to pass.
constexpr double kSpeed = 1, kSpeedStep = 0.1;
// Standard deviation of the logarithm of a pass's time: at first, and the bounds of what is learned.
constexpr double kNoise = 0.1, kLeastNoise = 0.02, kMostNoise = 0.5;
constexpr double kNoiseRate = 0.02;
// Share of the knowledge of the curve that a pass forgets. So sizes that are not used become uncertain again.
constexpr double kForgetting = 0.0005;
constexpr double kMostSurprise = 4;  // most expected variances by which one pass raises the noise

}  // namespace

PassTimes::PassTimes(std::vector<double> sizes, std::vector<double> measured, const Terms& terms)
    : sizes_(std::move(sizes)),
      measured_(std::move(measured)),
      terms_(terms),
      last_slope_(0),
      corrections_(sizes_.size()),
      speed_variance_(kSpeed * kSpeed),
      speed_covariance_(sizes_.size()),
      noise_(kNoise * kNoise),
      curve_(measured_) {
  const std::size_t points = sizes_.size();
  if (points > 1) last_slope_ = (measured_[points - 1] - measured_[points - 2]) / (sizes_[points - 1] - sizes_[points - 2]);
  for (std::size_t row = 0; row < points; ++row) {
    for (std::size_t column = 0; column < points; ++column) {
      const double distance = std::abs(std::log2(sizes_[row]) - std::log2(sizes_[column]));
      prior_.push_back(kShape * kShape * std::exp(-distance / kNeighbours) + (row == column ? kPoint * kPoint : 0));
    }
  }
  covariance_ = prior_;
}

double PassTimes::time(double rows, double requests, double context) const { return time_on(curve_, rows, requests, context); }

void PassTimes::times(std::span<const double> rows, double requests, double context, double deviations, bool reads, std::span<double> seconds) const {
  std::vector<double> curve = curve_;
  if (reads) {
    const double factor = std::exp(weighed(place(requests), corrections_));
    std::ranges::transform(measured_, curve.begin(), [&](double each) { return each * factor; });
  } else if (deviations != 0) {
    std::vector<double> corrections = this->deviations(requests);
    for (std::size_t point = 0; point < corrections.size(); ++point) corrections[point] = corrections_[point] + deviations * corrections[point];
    curve = corrected(corrections);
  }
  for (std::size_t at = 0; at < rows.size(); ++at) seconds[at] = time_on(curve, rows[at], requests, context);
}

void PassTimes::update(double rows, double requests, double context, double seconds) {
  const std::size_t points = sizes_.size();
  speed_variance_ += kSpeedStep * kSpeedStep;
  for (std::size_t cell = 0; cell < covariance_.size(); ++cell) covariance_[cell] += kForgetting * (prior_[cell] - covariance_[cell]);
  for (double& each : speed_covariance_) each *= 1 - kForgetting / 2;
  // The observation is the speed plus the correction of the pass; `shared` are its covariances with the state.
  const Place seen = place(rows);
  const double speed_shared = speed_variance_ + weighed(seen, speed_covariance_);
  std::vector<double> shared(points);
  for (std::size_t point = 0; point < points; ++point) {
    shared[point] = speed_covariance_[point] + weighed(seen, std::span(covariance_).subspan(point * points, points));
  }
  const double expected = speed_shared + weighed(seen, shared) + noise_;
  const double error = std::log(seconds / time(rows, requests, context));
  const double surprise = std::max(1.0, error * error / expected);  // an unlikely pass was noisy, and tells less
  const double variance = expected * surprise, step = error / variance;
  speed_ += speed_shared * step;
  speed_variance_ -= speed_shared * speed_shared / variance;
  for (std::size_t point = 0; point < points; ++point) {
    corrections_[point] += shared[point] * step;
    speed_covariance_[point] -= speed_shared * shared[point] / variance;
    for (std::size_t other = 0; other < points; ++other) covariance_[point * points + other] -= shared[point] * shared[other] / variance;
  }
  const double change = std::min(error * error, kMostSurprise * expected) - expected;
  noise_ = std::clamp(noise_ + kNoiseRate * change, kLeastNoise * kLeastNoise, kMostNoise * kMostNoise);
  factor_ = std::exp(speed_);
  curve_ = corrected(corrections_);
}

double PassTimes::slowdown() const { return std::exp(speed_ + corrections_.front()); }

PassTimes::Place PassTimes::place(double rows) const {
  const auto above = static_cast<std::size_t>(std::ranges::lower_bound(sizes_, rows) - sizes_.begin());
  if (above == 0 || above == sizes_.size()) return {.above = std::min(above, sizes_.size() - 1), .share = 1};
  return {.above = above, .share = (rows - sizes_[above - 1]) / (sizes_[above] - sizes_[above - 1])};
}

double PassTimes::weighed(const Place& place, std::span<const double> values) const {
  const double before = place.above == 0 ? 0 : (1 - place.share) * values[place.above - 1];
  return before + place.share * values[place.above];
}

// The curve with these corrections, made to rise.
std::vector<double> PassTimes::corrected(std::span<const double> corrections) const {
  std::vector<double> curve(measured_.size());
  double highest = 0;
  for (std::size_t point = 0; point < curve.size(); ++point)
    curve[point] = highest = std::max(highest, measured_[point] * std::exp(corrections[point]));
  return curve;
}

double PassTimes::time_on(std::span<const double> curve, double rows, double requests, double context) const {
  const auto next = static_cast<std::size_t>(std::ranges::upper_bound(sizes_, rows) - sizes_.begin());
  double linear = curve[next == 0 ? 0 : next - 1];
  if (next == sizes_.size()) {
    linear += (rows - sizes_.back()) * (last_slope_ * curve.back() / measured_.back());
  } else if (next > 0) {
    linear += (curve[next] - curve[next - 1]) / (sizes_[next] - sizes_[next - 1]) * (rows - sizes_[next - 1]);
  }
  const double single = curve.front() + terms_.per_request + (terms_.per_key + terms_.per_pair) * context;
  const double whole = linear + requests * (terms_.per_request + terms_.per_key * context) + terms_.per_pair * context * rows;
  return factor_ * std::min(whole, rows * single);
}

// Standard deviations of the corrections of sizes above `rows`, compared to the correction of a pass of `rows` rows.
std::vector<double> PassTimes::deviations(double rows) const {
  const std::size_t points = sizes_.size();
  const Place at = place(rows);
  std::vector<double> shared(points), found(points);
  for (std::size_t point = 0; point < points; ++point) shared[point] = weighed(at, std::span(covariance_).subspan(point * points, points));
  const double own = weighed(at, shared);
  for (std::size_t point = 0; point < points; ++point) {
    if (sizes_[point] > rows) found[point] = std::sqrt(std::max(0.0, covariance_[point * points + point] - 2 * shared[point] + own));
  }
  return found;
}

}  // namespace suffolk::drafting
