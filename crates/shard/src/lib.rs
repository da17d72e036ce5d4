//! The replicated state machine of one shard: topics, partitions, producer windows, paths and their deliveries.
//!
//! It knows nothing of Raft, disks or sockets. [`Shard::apply`] is a pure function of the state and one committed batch:
//! no clock, no randomness, no I/O, no node configuration. It answers with one [`Outcome`] per command and a list of
//! [`Effect`]s for the driver to carry out.
//!
//! Reading order: [`command`] (what may change), [`state`] (what there is), [`mod@apply`] (one file per command),
//! [`outcome`] and [`effect`] (what comes out), [`dead_letter`] (what is added to a dead message), [`mod@image`] (what a checkpoint keeps), [`record`] (the bytes of a message), [`ledger`] (what a trace reads).

pub mod apply;
pub mod command;
pub mod dead_letter;
pub mod defaults;
pub mod effect;
pub mod facts;
pub mod idempotency;
pub mod image;
pub mod ledger;
pub mod marks;
pub mod names;
pub mod outcome;
pub mod producer;
pub mod record;
pub mod retention;
pub mod schedule;
pub mod settings;
pub mod state;

pub use apply::{Applied, Shard};
pub use command::{
    Asked, BatchBuilder, ChangeGroup, ChangeTopic, Command, CommandError, DropDead, Grant, JoinGroup, Letter,
    PublishRun, PublishRunBuilder, Redrive, SeekTarget, SettleItem, SettleKind, Stamp, StartPolicy, Stretch, Times,
    Trim,
};
pub use dead_letter::Envelope;
pub use defaults::{DefaultKey, Defaults, DefaultsPatch};
pub use effect::{AppendEffect, CopyEffect, DeliverEffect, Effect, LedgerEffect, MessagePlace};
pub use idempotency::IdempotencyKey;
pub use image::{Image, ImageError};
pub use outcome::{LetterCode, Outcome, Published, Refusal, SettleCode};
pub use retention::Retention;
pub use schedule::Schedule;
pub use settings::{GroupSettings, Setting, SettingError, SettingsPatch, TopicSettings};
pub use state::paths::Gone;
pub use state::{Path, State, Topic};
