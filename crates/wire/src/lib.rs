//! Frames, ops and the error registry of the MortarMQ wire protocol
