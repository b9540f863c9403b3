//! Run by `.ci/long` alone.

mod more_agents;
