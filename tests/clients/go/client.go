// grpc-go: client ADDRESS WORKSPACE. Prints the name of each check that has passed.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	pb "provost/v1"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func check(holds bool, what interface{}) {
	if !holds {
		log.Fatal(what)
	}
}

func main() {
	address, workspace := os.Args[1], os.Args[2]
	ctx := context.Background()
	connection, err := grpc.Dial(address, grpc.WithInsecure())
	must(err)
	terminals := pb.NewTerminalsClient(connection)

	opened, err := pb.NewSessionsClient(connection).CreateSession(ctx, &pb.CreateSessionRequest{Roots: []string{workspace}})
	must(err)
	session := opened.Session.Id
	check(strings.HasPrefix(session, "sess_"), session)
	fmt.Println("unary")

	command := func(program string, args ...string) *pb.CreateTerminalRequest {
		return &pb.CreateTerminalRequest{
			SessionId: session,
			Command:   &pb.CreateTerminalRequest_Program{Program: program},
			Args:      args,
		}
	}

	events, err := terminals.Run(ctx, &pb.RunRequest{Create: command("seq", "100000")})
	must(err)
	var output, expected bytes.Buffer
	var finished *pb.Terminal
	for {
		event, err := events.Recv()
		if err == io.EOF {
			break
		}
		must(err)
		output.Write(event.GetChunk().GetData())
		finished = event.GetFinished()
	}
	for n := 1; n <= 100000; n++ {
		fmt.Fprintln(&expected, n)
	}
	check(bytes.Equal(output.Bytes(), expected.Bytes()), "other output")
	check(finished.Outcome.GetExitCode() == 0, finished)
	fmt.Println("stream")

	_, err = terminals.CreateTerminal(ctx, command("no-such-program"))
	refusal := status.Convert(err)
	check(refusal.Code() == codes.FailedPrecondition, err)
	info, isInfo := refusal.Details()[0].(*errdetails.ErrorInfo)
	check(isInfo && info.Domain == "provost" && info.Reason == "COMMAND_NOT_FOUND", refusal.Details())
	fmt.Println("details")

	sleeper, err := terminals.CreateTerminal(ctx, command("sleep", "1000"))
	must(err)
	short, end := context.WithTimeout(ctx, 200*time.Millisecond)
	_, err = terminals.WaitForExit(short, &pb.WaitForExitRequest{TerminalId: sleeper.Terminal.Id})
	end()
	check(status.Code(err) == codes.DeadlineExceeded, err)
	_, err = terminals.ReleaseTerminal(ctx, &pb.ReleaseTerminalRequest{TerminalId: sleeper.Terminal.Id})
	must(err)
	fmt.Println("deadline")

	cancellable, cancel := context.WithCancel(ctx)
	events, err = terminals.Run(cancellable, &pb.RunRequest{Create: command("sleep", "1000")})
	must(err)
	started, err := events.Recv()
	must(err)
	check(started.GetStarted() != nil, started)
	cancel()
	_, err = events.Recv()
	check(status.Code(err) == codes.Canceled, err)
	for {
		listed, err := terminals.ListTerminals(ctx, &pb.ListTerminalsRequest{SessionId: session})
		must(err)
		if len(listed.Terminals) == 0 {
			break
		}
	}
	fmt.Println("cancellation")

	services, err := reflection.NewServerReflectionClient(connection).ServerReflectionInfo(ctx)
	must(err)
	must(services.Send(&reflection.ServerReflectionRequest{
		MessageRequest: &reflection.ServerReflectionRequest_ListServices{},
	}))
	answer, err := services.Recv()
	must(err)
	found := false
	for _, one := range answer.GetListServicesResponse().Service {
		found = found || one.Name == "provost.v1.Terminals"
	}
	check(found, answer)
	fmt.Println("reflection")
}
