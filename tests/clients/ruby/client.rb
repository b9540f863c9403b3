# The gem grpc: client.rb ADDRESS WORKSPACE. Prints the name of each check that has passed.

require 'google/protobuf/well_known_types'
require 'grpc'
require 'google/rpc/error_details_pb'
require 'google/rpc/status_pb'
require 'provost/v1/sessions_services_pb'
require 'provost/v1/terminals_services_pb'
require 'reflection_services_pb'

include Provost::V1
$stdout.sync = true
address, workspace = ARGV
terminals = Terminals::Stub.new(address, :this_channel_is_insecure)

opened = Sessions::Stub.new(address, :this_channel_is_insecure).create_session(CreateSessionRequest.new(roots: [workspace]))
session = opened.session.id
raise session unless session.start_with?('sess_')
puts 'unary'

command = lambda do |program, *args|
  CreateTerminalRequest.new(session_id: session, program: program, args: args)
end

def refused(kind)
  yield
  raise 'the call succeeded'
rescue kind => e
  e
end

output = +''
finished = nil
terminals.run(RunRequest.new(create: command.call('seq', '100000'))).each do |event|
  output << event.chunk.data if event.chunk
  finished = event.finished if event.finished
end
raise 'other output' unless output == (1..100_000).map { |n| "#{n}\n" }.join
raise 'other end' unless finished.outcome.exit_code.zero?
puts 'stream'

error = refused(GRPC::FailedPrecondition) { terminals.create_terminal(command.call('no-such-program')) }
info = error.to_rpc_status.details.first.unpack(Google::Rpc::ErrorInfo)
raise info.to_s unless [info.domain, info.reason] == %w[provost COMMAND_NOT_FOUND]
puts 'details'

sleeper = terminals.create_terminal(command.call('sleep', '1000')).terminal.id
refused(GRPC::DeadlineExceeded) do
  terminals.wait_for_exit(WaitForExitRequest.new(terminal_id: sleeper), deadline: Time.now + 0.2)
end
terminals.release_terminal(ReleaseTerminalRequest.new(terminal_id: sleeper))
puts 'deadline'

call = terminals.run(RunRequest.new(create: command.call('sleep', '1000')), return_op: true)
events = call.execute
raise 'not started' if events.next.started.nil?
call.cancel
refused(GRPC::Cancelled) { events.next }
listed = ListTerminalsRequest.new(session_id: session)
nil until terminals.list_terminals(listed).terminals.empty?
puts 'cancellation'

reflection = Grpc::Reflection::V1
ask = reflection::ServerReflectionRequest.new(list_services: '')
answers = reflection::ServerReflection::Stub.new(address, :this_channel_is_insecure).server_reflection_info([ask])
services = answers.first.list_services_response.service.map(&:name)
raise services.to_s unless services.include?('provost.v1.Terminals')
puts 'reflection'
