//! The events of a run as its gateway sends them: of the call that began it, and of those that go on with it at the byte to which it has come.
//! None is missed, none comes twice. How long a gateway that is lost is waited for is for the caller to say.

use tonic::{Status, Streaming, transport::Channel};

use crate::proto::v1::{self, resume_run_response, run_response::Event, terminals_client::TerminalsClient};

/// A run under way.
#[derive(Debug)]
pub struct RunStream {
    terminal_id: String,
    /// Empty for a caller that names none.
    session_id: String,
    /// The offsets of the next bytes of stdout and stderr.
    offsets: [u64; 2],
    call: Call,
}

/// The call whose events come.
#[derive(Debug)]
enum Call {
    /// The one that began the run.
    Begun(Streaming<v1::RunResponse>),
    /// The one that goes on with it.
    Resumed(Streaming<v1::ResumeRunResponse>),
    /// There is none: its gateway is gone.
    Lost,
}

impl RunStream {
    /// A run of which the first event has come.
    pub fn new(terminal_id: String, session_id: String, begun: Streaming<v1::RunResponse>) -> Self {
        Self { terminal_id, session_id, offsets: [0; 2], call: Call::Begun(begun) }
    }

    /// The next event, in the words of the first call. `None`: the call has ended, or there is none.
    ///
    /// # Errors
    /// What the gateway or the connection says. The call has ended.
    pub async fn next(&mut self) -> Result<Option<Event>, Status> {
        let event = match &mut self.call {
            Call::Begun(stream) => stream.message().await.map(|response| response?.event),
            Call::Resumed(stream) => stream.message().await.map(|response| {
                response?.event.map(|event| match event {
                    resume_run_response::Event::Resumed(terminal) => Event::Started(terminal),
                    resume_run_response::Event::Chunk(chunk) => Event::Chunk(chunk),
                    resume_run_response::Event::Finished(terminal) => Event::Finished(terminal),
                })
            }),
            Call::Lost => Ok(None),
        };
        match &event {
            Ok(Some(Event::Chunk(chunk))) => {
                let place = usize::from(chunk.stream() == v1::OutputStream::Stderr);
                self.offsets[place] = chunk.offset + chunk.data.len() as u64;
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => self.call = Call::Lost,
        }
        event
    }

    /// Goes on with the run, of this gateway or of one after it.
    ///
    /// # Errors
    /// What the gateway or the connection says.
    pub async fn resume(&mut self, terminals: &mut TerminalsClient<Channel>) -> Result<(), Status> {
        let request = v1::ResumeRunRequest {
            terminal_id: self.terminal_id.clone(),
            session_id: self.session_id.clone(),
            stdout_offset: self.offsets[0],
            stderr_offset: self.offsets[1],
        };
        self.call = Call::Resumed(terminals.resume_run(request).await?.into_inner());
        Ok(())
    }
}
