//! Frames of the control protocol between gateway and supervisor. Pure.
