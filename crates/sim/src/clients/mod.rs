//! The clients of a world: producers, consumers and an operator. They know what an answer told them and nothing else, and
//! write down what they do and see.

pub(crate) mod consumer;
pub(crate) mod operator;
pub(crate) mod producer;
pub(crate) mod value;
