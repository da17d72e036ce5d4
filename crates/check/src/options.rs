//! What the caller asks of a check.

/// Which contract a broker is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contract {
    /// Nothing but an operator brings a settled message back.
    #[default]
    Mortarmq,
    /// A settled message may come back around a fault; it is counted.
    Narad,
}

/// What the caller asks of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The contract.
    pub contract: Contract,
    /// No fault explains anything.
    pub is_strict: bool,
    /// How long after a fault it still explains something; by default the path's lease and 20 s.
    ///
    /// # Units
    /// Nanoseconds.
    pub grace_ns: Option<u64>,
    /// The share of unfinished pairs up to which a run is overdue and not stalled.
    pub max_overdue: f64,
    /// Publishes, deliveries and settles that a history must have to mean anything.
    pub min_operations: u64,
    /// The share of the run that faults may cover when they explain something.
    pub max_fault_coverage: f64,
    /// How many finished messages are kept before the oldest is judged and forgotten.
    pub keep_finished: usize,
    /// How many steps one search for an order may take before it is given up.
    pub search_steps: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            contract: Contract::Mortarmq,
            is_strict: false,
            grace_ns: None,
            max_overdue: 0.5,
            min_operations: 1,
            max_fault_coverage: 0.5,
            keep_finished: 2_048,
            search_steps: 5_000_000,
        }
    }
}
