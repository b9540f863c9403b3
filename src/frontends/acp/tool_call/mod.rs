//! Tool calls on their way to the editor, with the terminals that are shown in them.

mod bounded_map;
mod bypass_detector;
mod output_follower;
mod parsed_update;
mod tool_call_state;
pub mod tool_calls;
