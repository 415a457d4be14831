// Estimates the time of a forward pass of a model, and corrects the estimates by the times of real passes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace suffolk::drafting {

// The time of a pass in seconds. `rows`: rows of all requests together; `requests`: number of requests; `context`: mean number of
// their cached tokens:
//
//   curve(rows) + requests * (per_request + per_key * context) + per_pair * rows * context
//
// It is at most the time of the same rows in passes of one row each. The curve interpolates between measured points, and continues
// after the last one with the last slope. serving/decoding/engine/costs/cost_model.py explains the form, and how real passes
// correct it. Not thread-safe.
class PassTimes {
 public:
  struct Terms {
    double per_request, per_key, per_pair;  // 0 or more
  };

  // REQUIRES: `sizes` rise from 1; `measured` has as many entries as `sizes`, all above 0, and they never fall.
  PassTimes(std::vector<double> sizes, std::vector<double> measured, const Terms& terms);

  double time(double rows, double requests, double context) const;
  // Writes the time for each of `rows`. `deviations`: how many standard deviations of the uncertainty to add. The uncertainty is
  // relative to a pass of `requests` rows. `reads`: whether the passes also read prompts; if so, all sizes get the correction of a
  // plain pass. REQUIRES: seconds has an entry for each of `rows`
  void times(std::span<const double> rows, double requests, double context, double deviations, bool reads, std::span<double> seconds) const;

  // Learns from a real pass: a step of a Kalman filter over logarithms, O(points^2).
  void update(double rows, double requests, double context, double seconds);

  // The current estimate for a pass of one row, divided by the measured time.
  double slowdown() const;

 private:
  // A place between two measured points. The point `above` has the weight `share`, and the point before it has the rest.
  struct Place {
    std::size_t above;
    double share;
  };
  Place place(double rows) const;
  double weighed(const Place& place, std::span<const double> values) const;
  std::vector<double> corrected(std::span<const double> corrections) const;
  double time_on(std::span<const double> curve, double rows, double requests, double context) const;
  std::vector<double> deviations(double rows) const;

  std::vector<double> sizes_, measured_;
  Terms terms_;
  double last_slope_;
  // The state of the filter: logarithms of the speed and of the correction of each point, with their covariance, row by row.
  double speed_ = 0;
  std::vector<double> corrections_;
  double speed_variance_;
  std::vector<double> speed_covariance_;    // covariance of the speed with each correction
  std::vector<double> prior_, covariance_;  // covariances of the corrections: at first, and now
  double noise_;                            // variance of the logarithm of a pass's time
  double factor_ = 1;                       // exp(speed_)
  std::vector<double> curve_;               // measured_ with the corrections
};

}  // namespace suffolk::drafting
