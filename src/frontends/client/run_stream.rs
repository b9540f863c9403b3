//! The events of a run as its gateway sends them: of the call that began it, or of the one that goes on with it.

use tonic::{Status, Streaming};

use crate::proto::v1::{self, resume_run_response, run_response::Event};

/// The call whose events come.
#[derive(Debug)]
pub enum RunStream {
    /// The one that began the run.
    Begun(Streaming<v1::RunResponse>),
    /// The one that goes on with it.
    Resumed(Streaming<v1::ResumeRunResponse>),
    /// There is none: its gateway is gone.
    Lost,
}

impl RunStream {
    /// The next event, in the words of the first call. `None`: the call has ended, or there is none.
    ///
    /// # Errors
    /// What the gateway or the connection says.
    pub async fn next(&mut self) -> Result<Option<Event>, Status> {
        Ok(match self {
            Self::Begun(stream) => stream.message().await?.and_then(|response| response.event),
            Self::Resumed(stream) => {
                stream.message().await?.and_then(|response| response.event).map(|event| match event {
                    resume_run_response::Event::Resumed(terminal) => Event::Started(terminal),
                    resume_run_response::Event::Chunk(chunk) => Event::Chunk(chunk),
                    resume_run_response::Event::Finished(terminal) => Event::Finished(terminal),
                })
            }
            Self::Lost => None,
        })
    }
}
