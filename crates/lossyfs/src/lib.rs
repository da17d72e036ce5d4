//! A file system for tests that loses unsynced writes on command.
