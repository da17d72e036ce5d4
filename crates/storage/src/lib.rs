//! Journal, segments and ledger files; all I/O through a Disk
