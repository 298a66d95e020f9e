//! Drivers, histories, models and checkers.
